import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import { connect, LeaderService, type Options } from "../src/index.js";

const folder = mkdtempSync(join(tmpdir(), "coxswain-"));
const caFile = join(folder, "ca.pem");
const keyFile = join(folder, "key.pem");
const tokenFile = join(folder, "token");
const sessions = new Set<{ destroy(): void }>();

// Answers with the token that it was shown.
const handler = connectNodeAdapter({
  routes: (router) =>
    router.service(LeaderService, {
      getLeader: (_, context) => {
        const token = context.requestHeader.get("authorization");
        if (token === null) {
          throw new ConnectError("no token", Code.Unauthenticated);
        }
        return { leader: { holderIdentity: token } };
      },
    }),
});

execFileSync(
  "openssl",
  ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=test",
    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", keyFile, "-out", caFile],
  { stdio: "ignore" },
);
const server = createSecureServer({ key: readFileSync(keyFile), cert: readFileSync(caFile) }, handler);
server.on("session", (session) => sessions.add(session));
let address: string;

before(async () => {
  writeFileSync(tokenFile, "rotated\n");
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});

after(() => {
  for (const session of sessions) {
    session.destroy();
  }
  server.close();
  rmSync(folder, { recursive: true });
});

async function holder(options: Options): Promise<string | undefined> {
  return (await connect(address, options).leader.getLeader({})).leader?.holderIdentity;
}

test("tokens are sent", async () => {
  assert.equal(await holder({ caFile, token: "secret" }), "Bearer secret");
  assert.equal(await holder({ caFile, tokenFile }), "Bearer rotated");
});

test("what does not hold is an error", async () => {
  await assert.rejects(holder({ caFile }), { code: Code.Unauthenticated });
  await assert.rejects(holder({ token: "secret" }), (error) => ConnectError.from(error).message.includes("certificate"));
});

test("options that cannot be", () => {
  assert.throws(() => connect("localhost:1", { token: "a", tokenFile: "b" }));
  assert.throws(() => connect("localhost:1", { certFile: "a" }));
});
