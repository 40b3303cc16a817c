import assert from "node:assert/strict";
import { before, test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";

import { connect, LeaderService, type Options } from "../src/index.js";
import { Authority, serve, write } from "./fixtures.js";

const authority = new Authority("authority");
const caFile = authority.file;
let address: string;

// Answers with the token that it was shown.
before(async () => {
  ({ address } = await serve(authority.issue("server"), (router) =>
    router.service(LeaderService, {
      getLeader: (_, context) => {
        const token = context.requestHeader.get("authorization");
        if (token === null) {
          throw new ConnectError("no token", Code.Unauthenticated);
        }
        return { leader: { holderIdentity: token } };
      },
    }),
  ));
});

async function holder(options: Options): Promise<string | undefined> {
  return (await connect(address, options).leader.getLeader({})).leader?.holderIdentity;
}

test("tokens are sent", async () => {
  assert.equal(await holder({ caFile, token: "secret" }), "Bearer secret");
  const tokenFile = write("token", "rotated\n");
  const client = connect(address, { ca: authority.pem, tokenFile });
  assert.equal((await client.leader.getLeader({})).leader?.holderIdentity, "Bearer rotated");
  write("token", "anew");
  assert.equal((await client.leader.getLeader({})).leader?.holderIdentity, "Bearer anew");
});

test("what does not hold is an error", async () => {
  await assert.rejects(holder({ caFile }), { code: Code.Unauthenticated });
  await assert.rejects(holder({ token: "secret" }), (error) => ConnectError.from(error).message.includes("certificate"));
  await assert.rejects(holder({ caFile, tokenFile: write("empty", "") }), /empty: the file contains no token/);
});

test("options that cannot be", () => {
  assert.throws(() => connect("localhost:1", { token: "a", tokenFile: "b" }), /set only one/);
  assert.throws(() => connect("localhost:1", { certFile: "a" }), /set both or neither/);
  assert.throws(() => connect("localhost:1", { ca: "a", caFile: "b" }), /set only one/);
  assert.throws(() => connect("localhost:1", { ca: "a" }), /no certificate/);
  assert.throws(() => connect("localhost:1", { caFile: "/nonexistent" }), /nonexistent/);
});
