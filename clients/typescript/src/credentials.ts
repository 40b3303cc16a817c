/** Whom to trust and who one is, by files that are read anew. */

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { checkServerIdentity, connect, createSecureContext, type PeerCertificate, type SecureContext, type TLSSocket } from "node:tls";

/** Whom to trust and who one is. Without any, the system's authorities are trusted and no credentials shown. */
export interface Options {
  /** File with the authorities (PEM) that may vouch for the server, read anew for every connection. */
  caFile?: string;
  /** The same as `caFile`, but its content. */
  ca?: string;
  /** File with a client certificate (PEM), together with `keyFile`, read anew for every connection. */
  certFile?: string;
  /** File with the client certificate's key (PEM). */
  keyFile?: string;
  /** A bearer token, that of a service account for example. */
  token?: string;
  /** File with a bearer token, read anew for every call, as tokens in pods are rotated. */
  tokenFile?: string;
  /** Name expected in the server's certificate instead of the address' host. */
  serverName?: string;
}

/** Throws if options exclude each other. */
export function checkOptions({ caFile, ca, certFile, keyFile, token, tokenFile }: Options): void {
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw new Error("of certFile and keyFile only one is given: both or neither are allowed");
  }
  if (token !== undefined && tokenFile !== undefined) {
    throw new Error("token and tokenFile are both given: one is allowed");
  }
  if (ca !== undefined && caFile !== undefined) {
    throw new Error("ca and caFile are both given: one is allowed");
  }
}

export function hasToken({ token, tokenFile }: Options): boolean {
  return token !== undefined || tokenFile !== undefined;
}

/** The token as it is now. */
export function readToken({ token, tokenFile }: Options): string | undefined {
  if (tokenFile === undefined) {
    return token;
  }
  const content = readFileSync(tokenFile, "utf8").trim();
  if (content === "") {
    throw new Error(`${tokenFile}: there is no token in it`);
  }
  return content;
}

/**
 * TLS by files that are read anew for every connection, so that a client outlives a rotation of its certificate and of
 * the authorities that it trusts.
 */
export class RotatingContext {
  readonly #options: Options;
  readonly #refusesNodes: boolean;
  #last: SecureContext;

  /** `refusesNodes` refuses servers with the certificate of a node, before a token is sent. */
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
   * What the files say now. A reader may come between the writing of a certificate and that of its key: what was read
   * last holds until the files fit each other again, and a warning of the process says what does not fit.
   */
  get(): SecureContext {
    try {
      this.#last = readContext(this.#options);
    } catch (error) {
      process.emitWarning(`the credentials read last go on to be used: ${(error as Error).message}`, "CoxswainWarning");
    }
    return this.#last;
  }
}

/**
 * Returns an error if a server has the certificate of a node, or one for another name. The signer
 * `kubernetes.io/kubelet-serving` signs any name that an approver accepts, but only with a node as the subject.
 */
function refuseNode(name: string, certificate: PeerCertificate): Error | undefined {
  // Several values of an attribute are an array, which the types do not say.
  const { O, CN } = certificate.subject as { O?: string | string[]; CN?: string | string[] };
  const isNode = [O ?? []].flat().includes("system:nodes") || [CN ?? []].flat().some((each) => each.startsWith("system:node:"));
  return isNode
    ? new Error(`the certificate for ${name} is a node's, and with clusterCaFile no token is sent to a node`)
    : checkServerIdentity(name, certificate);
}

function readContext({ caFile, ca, certFile, keyFile }: Options): SecureContext {
  const authorities = caFile === undefined ? ca : readFileSync(caFile, "utf8");
  if (authorities !== undefined && !authorities.includes("-----BEGIN CERTIFICATE-----")) {
    throw new Error(`${caFile ?? "ca"}: there is no certificate (PEM) in it`);
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
