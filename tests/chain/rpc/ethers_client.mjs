// What a program on ethers does with the served chain; prints what it saw as JSON.
//
// node ethers_client.mjs NODE_MODULES URL ARTEFACT LEDGER PROBE KEY WORDS REST

import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, url, artefact, address, probe, key, words, rest] = process.argv.slice(2);
const { ethers } = await import(pathToFileURL(path.join(modules, "ethers/lib.esm/index.js")));

const provider = new ethers.JsonRpcProvider(url, undefined, { pollingInterval: 50 });
const wallet = new ethers.Wallet(key, provider);
const { abi } = JSON.parse(readFileSync(artefact, "utf8"));
const ledger = new ethers.Contract(address, abi, wallet);

const plain = (value) =>
  JSON.parse(JSON.stringify(value, (_, part) => (typeof part === "bigint" ? `${part}` : part)));

const seen = { chainId: `${(await provider.getNetwork()).chainId}` };
const genesis = await provider.getBlock(0);
seen.genesis = { hash: genesis.hash, beaconRoot: genesis.parentBeaconBlockRoot };
seen.feeData = plain(await provider.getFeeData());
seen.before = plain((await ledger.state()).toObject());
seen.deployment = plain((await ledger.deployment()).toObject());

const opened = new Promise((resolve) => ledger.once("LedgerOpened", (...found) => resolve(found)));
await new Promise((resolve) => setTimeout(resolve, 100)); // the filter is made meanwhile
const sent = await ledger.register_clients(JSON.parse(words), rest);
const receipt = await sent.wait();
seen.sent = {
  from: sent.from,
  block: receipt.blockNumber,
  status: receipt.status,
  paid: `${receipt.gasPrice}`,
  events: receipt.logs.map((log) => log.fragment?.name ?? null),
};
const event = (await opened).at(-1);
seen.event = { block: event.log.blockNumber, committee: plain(event.args.committee.toArray()) };
seen.after = plain((await ledger.state()).toObject());

const held = await provider.getBlock(receipt.blockNumber, true);
seen.prefetched = held.prefetchedTransactions.map((one) => one.hash);
seen.logs = (await provider.getLogs({ address, fromBlock: 0 })).map((log) => log.transactionHash);
seen.queried = (await ledger.queryFilter("ClientsRegistered", 0)).map((log) => `${log.args.first}`);

try {
  await ledger.abandon_round.staticCall(1);
} catch (error) {
  seen.reverted = { code: error.code, reason: error.reason };
}
try {
  await wallet.sendTransaction({ to: probe, nonce: 0, gasLimit: 100_000 });
} catch (error) {
  seen.refused = error.code;
}
provider.destroy();
console.log(JSON.stringify(seen));
