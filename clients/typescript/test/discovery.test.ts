import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { before, test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";

import { choose, decide, type Facts } from "../src/discovery.js";
import { ApiServer, CERTIFICATE_NAME, Finder, type Lease, LeaderService, type Leases, NotVouchedForError, type Replica } from "../src/index.js";
import { atEnd, Authority, type Pair, serve, write } from "./fixtures.js";

// The tables are those of the command line, which has the same rules.
function table<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../../../go/testdata/${name}`, import.meta.url), "utf8")) as T;
}

test("trust is that of the command line", () => {
  const names = ["authority", "trustAnnounced", "named", "announced", "clusterAuthority", "token", "certificate"];
  const rows = table<{ facts: string[]; voucher: string | null; sendToken: boolean; name: string | null }[]>("trust.json");
  assert.equal(rows.length, 128);
  for (const { facts, voucher, sendToken, name } of rows) {
    const held = Object.fromEntries(names.map((name) => [name, facts.includes(name)])) as unknown as Facts;
    const decision = decide(held);
    const found = [decision?.voucher ?? null, decision?.sendToken ?? false, decision?.name ?? null];
    assert.deepEqual(found, [voucher, sendToken, name], facts.join());
  }
});

test("replicas are those of the command line", () => {
  interface Case {
    about: string;
    leases: Lease[];
    holder: string;
    lease?: string;
    candidates: { identity: string; address: string; authority: string | null; leads: boolean }[];
    passedOver: string[];
  }
  const file = table<{ now: string; cases: Case[] }>("leases.json");
  for (const { about, leases, holder, lease, candidates, passedOver } of file.cases) {
    const wanted = candidates.map((each) => ({
      ...each,
      name: `coxswain-replica-${each.identity}`,
      authority: each.authority ?? "",
    }));
    const found = choose(leases, lease ?? "kube-system/kube-controller-manager", holder, Date.parse(file.now));
    assert.deepEqual(found, { candidates: wanted, passedOver, holder }, about);
  }
});

const authority = new Authority("authority");
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/";
const pages = new Map<string, unknown>();
let server: string;

// An API server that has pages for who shows the token "secret".
before(async () => {
  const api = createServer(authority.issue("server"), (request, answer) => {
    const page = pages.get(request.url ?? "");
    if (request.headers.authorization !== "Bearer secret") {
      answer.writeHead(403).end(JSON.stringify({ message: "leases is forbidden" }));
    } else if (request.url?.startsWith("/elsewhere/")) {
      answer.writeHead(302, { location: "https://localhost:1/" }).end();
    } else {
      answer.writeHead(page === undefined ? 404 : 200).end(JSON.stringify(page ?? {}));
    }
  });
  await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    api.closeAllConnections();
    api.close();
  });
  server = `https://127.0.0.1:${(api.address() as AddressInfo).port}`;
});

test("replicas are found by a Lease of another name", async () => {
  const annotations = { "coxswain.dev/admin-address": "10.0.0.2:10257" };
  const spec = { holderIdentity: "b", renewTime: "2026-11-21T15:30:00.000000Z", leaseDurationSeconds: 40 };
  pages.set(`${LEASES}kube-system/leases?labelSelector=coxswain.dev%2Fcomponent%3Dreplica`, {
    items: [{ metadata: { name: "coxswain-replica-1", annotations }, spec }],
  });
  pages.set(`${LEASES}managers/leases/coxswain`, { spec: { holderIdentity: "b" } });
  const leases = new ApiServer(server, { caFile: authority.file, tokenFile: write("token", "secret\n") });
  const now = (): number => Date.parse("2026-11-21T15:30:30Z");
  const replica = { address: "10.0.0.2:10257", name: "coxswain-replica-1", identity: "b", authority: "" };
  const usual = await new Finder({ leases, now }).replicas();
  assert.deepEqual(usual, { candidates: [{ ...replica, leads: false }], passedOver: [], holder: "" });
  const found = await new Finder({ leases, now, leaseName: "coxswain", leaseNamespace: "managers" }).replicas();
  assert.deepEqual(found, { candidates: [{ ...replica, leads: true }], passedOver: [], holder: "b" });
});

test("an API server that does not answer says why", async () => {
  for (const [token, wanted] of [["secret", /404/], ["other", /leases is forbidden .*coxswain-admin-discovery/]] as const) {
    const leases = new ApiServer(server, { ca: authority.pem, token });
    await assert.rejects(leases.list("kube-system", ""), wanted);
    assert.equal(await leases.get("kube-system", "x"), undefined);
  }
  const elsewhere = new ApiServer(`${server}/elsewhere`, { ca: authority.pem, token: "secret" });
  await assert.rejects(elsewhere.list("kube-system", ""), /302/, "the token is not taken elsewhere");
  const stranger = new ApiServer(server, { ca: new Authority("stranger").pem, token: "secret" });
  await assert.rejects(stranger.list("kube-system", ""), /GET .* of 127\.0\.0\.1:.*certificate/);
  await assert.rejects(stranger.list("kube-system", "", AbortSignal.abort()), /abort/);
  for (const wrong of ["http://localhost:1", "localhost:1", "https://", "https://jane:secret@localhost:1"]) {
    assert.throws(() => new ApiServer(wrong), /expected https:\/\/HOST\[:PORT\]/, wrong);
  }
});

const noLeases: Leases = { list: async () => [], get: async () => undefined };

// Whoever may write Leases can have a named replica name any address as the leader's.
test("a token does not go on to whom a named replica names", () => {
  const finder = new Finder({ addresses: ["admin.test:443"], options: { token: "secret" } });
  const at = (address: string): Replica => ({ address, name: "", identity: "", authority: "", leads: false });
  finder.connect(at("admin.test:443"));
  for (const other of ["leader.test:443", "admin.test:444"]) {
    assert.throws(() => finder.connect(at(other)), NotVouchedForError, other);
  }
});

/** A server that answers with the token that it was shown. */
async function echo(pair: Pair): Promise<string> {
  const { address } = await serve(pair, (router) =>
    router.service(LeaderService, {
      getLeader: (_, { requestHeader }) => {
        const token = requestHeader.get("authorization");
        if (token === null) {
          throw new ConnectError("no token", Code.Unauthenticated);
        }
        return { leader: { holderIdentity: token } };
      },
    }),
  );
  return address;
}

test("a certificate of the cluster's CA with another name gets no token", async () => {
  const cluster = new Authority("cluster");
  const [options, clusterCaFile] = [{ token: "secret" }, cluster.file];
  const asReplica = (address: string): Replica => ({ address, name: "", identity: "b", authority: "", leads: false });
  const finder = new Finder({ leases: noLeases, options, clusterCaFile });
  const coxswain = finder.connect(asReplica(await echo(cluster.issue("coxswain", CERTIFICATE_NAME))));
  assert.equal((await coxswain.leader.getLeader({})).leader?.holderIdentity, "Bearer secret");
  // Whoever may write Leases announces a node, which has a certificate for its address.
  const { cert, key } = cluster.issue("node");
  const node = asReplica(await echo({ cert, key }));
  await assert.rejects(finder.connect(node).leader.getLeader({}), /coxswain\.kube-system\.svc/);
  assert.match(finder.hint(node), /clusterCaFile, .*coxswain\.kube-system\.svc/);
  // An approver has let a node have the name of Coxswain.
  const subjects = ["/O=system:nodes/CN=system:node:a", "/O=others/O=system:nodes/CN=coxswain", "/CN=system:node:a"];
  for (const [at, subject] of subjects.entries()) {
    const pair = cluster.issueTo(subject, `node-${at}`, CERTIFICATE_NAME);
    const refused = finder.connect(asReplica(await echo(pair))).leader.getLeader({});
    await assert.rejects(refused, /belongs to a node/, subject);
  }
  // The user may name the server.
  const named = new Finder({ addresses: [node.address], options, clusterCaFile }).connect(node);
  assert.equal((await named.leader.getLeader({})).leader?.holderIdentity, "Bearer secret");
  // A client certificate needs no other name, and the token beside it stays here.
  const both = { ...options, certFile: write("node.pem", cert), keyFile: write("node.key", key) };
  const certified = new Finder({ leases: noLeases, options: both, clusterCaFile }).connect(node);
  await assert.rejects(certified.leader.getLeader({}), { code: Code.Unauthenticated });
});

test("a token does not go where only a Lease says so", async () => {
  const address = await echo(authority.issue("server"));
  const replica: Replica = { address, name: "", identity: "b", authority: authority.pem, leads: false };
  const options = { token: "secret" };
  assert.throws(() => new Finder({ leases: noLeases, options }).connect(replica), NotVouchedForError);
  const trusting = new Finder({ leases: noLeases, options, trustAnnounced: true }).connect(replica);
  assert.equal((await trusting.leader.getLeader({})).leader?.holderIdentity, "Bearer secret");
  // A certificate gives nothing away; the token beside it would.
  const { cert, key } = authority.issue("jane");
  const both = { ...options, certFile: write("client.pem", cert), keyFile: write("client.key", key) };
  const careful = new Finder({ leases: noLeases, options: both });
  await assert.rejects(careful.connect(replica).leader.getLeader({}), { code: Code.Unauthenticated });
  assert.throws(() => careful.connect({ ...replica, authority: "nonsense" }), /the Lease of b at .*no certificate/);
});

test("addresses that a replica cannot have", () => {
  const finder = new Finder({ leases: noLeases });
  const replica = { name: "", identity: "", authority: "", leads: false };
  for (const address of [
    "", "a", "a:0", "a:65536", "a:x", "unix:/run/x", "unix:/x:1", "https://a:1", "a@b:1", "fd00::2:1", "[a]:1", "a/b:1",
    "a b:1", "a\n:1",
  ]) {
    assert.throws(() => finder.connect({ ...replica, address }), /expected HOST:PORT/, address);
  }
  for (const address of ["a:1", "node-1.example:10257", "10.0.0.2:10257", "[fd00::2]:10257"]) {
    finder.connect({ ...replica, address });
  }
  assert.throws(() => new Finder({}), /exactly one/);
  assert.throws(() => new Finder({ leases: noLeases, addresses: ["a:1"] }), /exactly one/);
});
