import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { connect, LeaderService } from "../src/index.js";
import { Authority, type Pair, serve, type Serving, write } from "./fixtures.js";

const [first, second] = [new Authority("first"), new Authority("second")];
const files = { caFile: write("ca.pem", first.pem), certFile: "", keyFile: "" };

function rotate({ cert, key }: Pair, authority: Authority): void {
  write("ca.pem", authority.pem);
  files.certFile = write("client.pem", cert);
  files.keyFile = write("client.key", key);
}

function mutual(authority: Authority): object {
  return { ...authority.issue("server"), ca: authority.pem, requestCert: true, rejectUnauthorized: true };
}

// Answers with the name in the client's certificate.
async function mirror(): Promise<Serving> {
  return await serve(mutual(first), (router, certified) =>
    router.service(LeaderService, {
      getLeader: (_, { requestHeader }) => ({ leader: { holderIdentity: certified(requestHeader) } }),
    }),
  );
}

test("a client outlives a rotation", async () => {
  const { address, server, drop } = await mirror();
  rotate(first.issue("jane"), first);
  const client = connect(address, files);
  const who = async (): Promise<string | undefined> => (await client.leader.getLeader({})).leader?.holderIdentity;
  assert.equal(await who(), "jane");
  // The server's certificate and all authorities change, under the same client.
  rotate(second.issue("joan"), second);
  server.setSecureContext(mutual(second));
  drop();
  // The loss of the connection may come with this call; the next one makes another.
  await who().catch(() => undefined);
  assert.equal(await who(), "joan");
});

test("what was read last holds until the files fit", async () => {
  const { address, drop } = await mirror();
  rotate(first.issue("jane"), first);
  const client = connect(address, files);
  const who = async (): Promise<string | undefined> => {
    drop();
    await client.leader.getLeader({}).catch(() => undefined);
    return (await client.leader.getLeader({})).leader?.holderIdentity;
  };
  const { cert, key } = first.issue("joan");
  write("client.pem", cert);
  let warned = once(process, "warning");
  assert.equal(await who(), "jane");
  assert.match((await warned)[0].message, /client\.pem, .*client\.key/);
  write("client.key", key);
  assert.equal(await who(), "joan");
  write("ca.pem", "");
  warned = once(process, "warning");
  assert.equal(await who(), "joan");
  assert.match((await warned)[0].message, /ca\.pem: contains no certificate/);
});
