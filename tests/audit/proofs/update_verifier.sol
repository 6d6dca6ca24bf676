// SPDX-License-Identifier: MIT
pragma solidity ^0.8.24;

import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";

/// A contract of somebody else's that takes our proof of an update: all it has is the root.
contract UpdateVerifier {
    function verify(
        bytes32[] calldata siblings,
        bytes32 root,
        uint32 client,
        bytes32 payload,
        uint32 rank,
        uint64 distanceBits,
        bool accepted
    ) external pure returns (bool) {
        bytes32 fields = keccak256(abi.encode(client, payload, rank, distanceBits, accepted));
        return MerkleProof.verifyCalldata(siblings, root, keccak256(bytes.concat(fields)));
    }
}
