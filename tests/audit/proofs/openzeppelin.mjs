// What OpenZeppelin's own code makes of our trees; prints it as JSON.
//
// node openzeppelin.mjs NODE_MODULES SOURCE, with {types, leaves, proofs, root} on standard input:
// the tree that @openzeppelin/merkle-tree builds of the leaves, whether it accepts each proof, and
// the byte code that solc makes of a contract on @openzeppelin/contracts.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, source] = process.argv.slice(2);
const load = createRequire(path.join(path.resolve(modules), "none.js"));
const { StandardMerkleTree } = load("@openzeppelin/merkle-tree");
const solc = load("solc");

const asked = JSON.parse(readFileSync(0, "utf8"));
const tree = StandardMerkleTree.of(asked.leaves, asked.types);

const input = {
  language: "Solidity",
  sources: { "verifier.sol": { content: readFileSync(source, "utf8") } },
  settings: { evmVersion: "cancun", outputSelection: { "*": { "*": ["evm.bytecode.object"] } } },
};
const found = (name) => ({ contents: readFileSync(path.join(modules, name), "utf8") });
const compiled = JSON.parse(solc.compile(JSON.stringify(input), { import: found }));
const wrong = (compiled.errors ?? []).filter((one) => one.severity === "error");
if (wrong.length > 0) throw new Error(wrong[0].formattedMessage);

console.log(
  JSON.stringify({
    root: tree.root,
    proofs: asked.leaves.map((leaf) => tree.getProof(leaf)),
    accepted: asked.leaves.map((leaf, place) =>
      StandardMerkleTree.verify(asked.root, asked.types, leaf, asked.proofs[place]),
    ),
    refused: asked.leaves.map((leaf, place) =>
      StandardMerkleTree.verify(
        asked.root,
        asked.types,
        [leaf[0], leaf[1], leaf[2] + 1, leaf[3], leaf[4]],
        asked.proofs[place],
      ),
    ),
    bytecode: compiled.contracts["verifier.sol"].UpdateVerifier.evm.bytecode.object,
  }),
);
