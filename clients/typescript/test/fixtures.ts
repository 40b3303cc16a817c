/** Certificates and servers of the tests' own. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createSecureServer, type Http2SecureServer, type SecureServerOptions } from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

import { type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

const folder = mkdtempSync(join(tmpdir(), "coxswain-"));
const ends: (() => void)[] = [() => rmSync(folder, { recursive: true })];
after(() => ends.reverse().forEach((end) => end()));

/** Runs when the tests of a file have ended. */
export function atEnd(end: () => void): void {
  ends.push(end);
}

export function write(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

export interface Pair {
  cert: string;
  key: string;
}

/** Signs certificates. */
export class Authority {
  readonly file: string;
  readonly pem: string;
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
    this.file = join(folder, `${name}.pem`);
    this.pem = issue(name, "/CN=authority", []).cert;
  }

  /** A certificate for a client of this name, and for servers on loopback and with the other names. */
  issue(name: string, ...names: string[]): Pair {
    return this.issueTo(`/CN=${name}`, name, ...names);
  }

  /** The same with another subject, as OpenSSL takes it. */
  issueTo(subject: string, name: string, ...names: string[]): Pair {
    const alternatives = ["IP:127.0.0.1", ...names.map((other) => `DNS:${other}`)].join(",");
    const signer = ["-CA", this.file, "-CAkey", join(folder, `${this.#name}.key`)];
    return issue(`${this.#name}-${name}`, subject, [...signer, "-addext", `subjectAltName=${alternatives}`]);
  }
}

function issue(file: string, subject: string, rest: string[]): Pair {
  const [cert, key] = [join(folder, `${file}.pem`), join(folder, `${file}.key`)];
  const fresh = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  execFileSync("openssl", [...fresh, ...rest, "-subj", subject, "-keyout", key, "-out", cert], { stdio: "ignore" });
  return { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") };
}

/** A server on a free port, until the tests have ended. */
export interface Serving {
  address: string;
  server: Http2SecureServer;
  /** Ends all connections. */
  drop(): void;
  /** How many connections are open. */
  open(): number;
}

export async function serve(
  options: SecureServerOptions,
  routes: (router: ConnectRouter, certified: (headers: Headers) => string) => void,
): Promise<Serving> {
  // The adapter hands on headers alone: who came with which certificate goes with them.
  const names = new Headers();
  const handler = connectNodeAdapter({ routes: (router) => void routes(router, () => names.get("name") ?? "") });
  const server = createSecureServer(options, handler);
  const sessions = new Set<{ destroy(): void }>();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
  });
  server.on("secureConnection", (socket) => names.set("name", socket.getPeerCertificate().subject?.CN ?? ""));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const drop = (): void => {
    sessions.forEach((session) => session.destroy());
    sessions.clear();
  };
  atEnd(() => {
    drop();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, server, drop, open: () => sessions.size };
}
