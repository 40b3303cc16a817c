/** Trusted CAs and credentials, with files that are read again after a rotation. */

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { checkServerIdentity, connect, createSecureContext, type PeerCertificate, type SecureContext, type TLSSocket } from "node:tls";

/** Contains the trusted CAs and the caller's credentials. By default, the system's CAs are trusted and no credentials are sent. */
export interface Options {
  /** File with the trusted CAs (PEM), read for every connection. */
  caFile?: string;
  /** Content of such a file. */
  ca?: string;
  /** File with a client certificate (PEM), read for every connection. Set `keyFile`, too. */
  certFile?: string;
  /** File with the client certificate's key (PEM). */
  keyFile?: string;
  /** Bearer token, for example of a service account. */
  token?: string;
  /** File with a bearer token, read for every call, because tokens in pods are rotated. */
  tokenFile?: string;
  /** Name to expect in the server's certificate, instead of the host of the address. */
  serverName?: string;
}

/** Throws if options exclude each other. */
export function checkOptions({ caFile, ca, certFile, keyFile, token, tokenFile }: Options): void {
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw new Error("certFile and keyFile: set both or neither");
  }
  if (token !== undefined && tokenFile !== undefined) {
    throw new Error("token and tokenFile are both set; set only one");
  }
  if (ca !== undefined && caFile !== undefined) {
    throw new Error("ca and caFile are both set; set only one");
  }
}

export function hasToken({ token, tokenFile }: Options): boolean {
  return token !== undefined || tokenFile !== undefined;
}

/** Returns the current token. */
export function readToken({ token, tokenFile }: Options): string | undefined {
  if (tokenFile === undefined) {
    return token;
  }
  const content = readFileSync(tokenFile, "utf8").trim();
  if (content === "") {
    throw new Error(`token file ${tokenFile}: the file contains no token`);
  }
  return content;
}

/**
 * TLS credentials that read their files for every connection, so that a client survives a rotation of its certificate and
 * of its trusted CAs.
 */
export class RotatingContext {
  readonly #options: Options;
  readonly #refusesNodes: boolean;
  #last: SecureContext;

  /** `refusesNodes` rejects servers with the certificate of a node before a token is sent. */
  constructor(options: Options, refusesNodes = false) {
    checkOptions(options);
    this.#options = options;
    this.#refusesNodes = refusesNodes;
    this.#last = readContext(options);
  }

  /** Opens a connection to the host and port of a URL. */
  open(url: URL, protocol?: string): TLSSocket {
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const name = this.#options.serverName ?? (isIP(host) === 0 ? host : undefined);
    return connect({
      host,
      port: Number(url.port || 443),
      secureContext: this.get(),
      ...(protocol !== undefined && { ALPNProtocols: [protocol] }),
      ...(name !== undefined && { servername: name }),
      ...(this.#refusesNodes && { checkServerIdentity: refuseNode }),
    });
  }

  /**
   * Returns the current context. The certificate and its key are not replaced at the same time: until they match again, the
   * previous context is returned, and the process emits a warning.
   */
  get(): SecureContext {
    try {
      this.#last = readContext(this.#options);
    } catch (error) {
      process.emitWarning(`Failed to read the credentials; using the previous ones: ${(error as Error).message}`, "CoxswainWarning");
    }
    return this.#last;
  }
}

/**
 * Returns an error if a server has the certificate of a node, or one for another name. The signer
 * `kubernetes.io/kubelet-serving` signs any name that an approver accepts, but only with a node as the subject.
 */
function refuseNode(name: string, certificate: PeerCertificate): Error | undefined {
  // Several values of an attribute are an array, which the types do not declare.
  const { O, CN } = certificate.subject as { O?: string | string[]; CN?: string | string[] };
  const isNode = [O ?? []].flat().includes("system:nodes") || [CN ?? []].flat().some((each) => each.startsWith("system:node:"));
  return isNode
    ? new Error(`refusing to send a token: the certificate for ${name} belongs to a node`)
    : checkServerIdentity(name, certificate);
}

function readContext({ caFile, ca, certFile, keyFile }: Options): SecureContext {
  const authorities = caFile === undefined ? ca : readFileSync(caFile, "utf8");
  if (authorities !== undefined && !authorities.includes("-----BEGIN CERTIFICATE-----")) {
    throw new Error(`${caFile ?? "ca"}: contains no certificate (PEM)`);
  }
  const pair = certFile !== undefined && keyFile !== undefined && { cert: readFileSync(certFile), key: readFileSync(keyFile) };
  try {
    return createSecureContext({
      minVersion: "TLSv1.2",
      ...(authorities !== undefined && { ca: authorities }),
      ...pair,
    });
  } catch (error) {
    const files = [caFile ?? (ca !== undefined ? "ca" : undefined), certFile, keyFile].filter((file) => file !== undefined);
    throw new Error(`${files.join(", ")}: ${(error as Error).message}`, { cause: error });
  }
}
