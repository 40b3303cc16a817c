/** Finds replicas by their Leases, and selects the credentials to send to each of them. */

import { type IncomingMessage } from "node:http";
import { request as requestHttps } from "node:https";
import { isIPv6 } from "node:net";

import { type AdminClient, connect, connectRefusingNodes } from "./connect.js";
import { hasToken, type Options, readToken, RotatingContext } from "./credentials.js";

const REPLICA_NAMESPACE = "kube-system";
const REPLICA_SELECTOR = "coxswain.dev/component=replica";
const ADDRESS = "coxswain.dev/admin-address";
const AUTHORITY = "coxswain.dev/admin-ca";
/** The replica's leader-election Lease, as `NAMESPACE/NAME`, and the replica's identity. */
const LEASE = "coxswain.dev/lease";
const DEFAULT_LEASE = { namespace: "kube-system", name: "kube-controller-manager" };
const POD = "/var/run/secrets/kubernetes.io/serviceaccount";
const API_TIMEOUT_MS = 10_000;
/** A Lease has at most some kilobytes. */
const MAX_ANSWER = 16 << 20;
/** Matches valid hosts. The address comes from a Lease, so it must not contain other parts of a URL. */
const HOST = /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/;

/** Name in the serving certificates that the cluster's CA signs for Coxswain. Certificates of nodes must not contain it. */
export const CERTIFICATE_NAME = "coxswain.kube-system.svc";

/** Contains the used fields of a Lease (coordination.k8s.io/v1). The type of `@kubernetes/client-node` is compatible. */
export interface Lease {
  metadata?: { name?: string; annotations?: Record<string, string> };
  spec?: { holderIdentity?: string; renewTime?: string | Date | null; leaseDurationSeconds?: number };
}

/**
 * Reads Leases from the cluster. `ApiServer` implements it. You can also implement it with an existing client of the
 * cluster.
 */
export interface Leases {
  /** Lists the Leases of a namespace that match a label selector. */
  list(namespace: string, labelSelector: string, signal?: AbortSignal): Promise<Lease[]>;
  /** Returns one Lease; `undefined` if the Lease does not exist or the caller cannot read it. */
  get(namespace: string, name: string, signal?: AbortSignal): Promise<Lease | undefined>;
}

/** Reads Leases from the cluster's API server. It requires HTTPS. */
export class ApiServer implements Leases {
  readonly #url: URL;
  readonly #options: Options;
  readonly #context: RotatingContext;

  /** `server` is "https://HOST[:PORT]". The files of `options` are read for every request. */
  constructor(server: string, options: Options = {}) {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    if (url?.protocol !== "https:" || url.hostname === "" || url.username !== "") {
      throw new Error(`API server ${JSON.stringify(server)}: expected https://HOST[:PORT]`);
    }
    this.#url = url;
    this.#options = options;
    this.#context = new RotatingContext(options);
  }

  async list(namespace: string, labelSelector: string, signal?: AbortSignal): Promise<Lease[]> {
    const query = new URLSearchParams({ labelSelector });
    const path = `${leases(namespace)}?${query}`;
    const { status, body } = await this.#get(path, signal);
    if (status === 200) {
      return parse<{ items?: Lease[] }>(path, body).items ?? [];
    }
    const hint = status === 403 ? " (bind the Role coxswain-admin-discovery)" : "";
    throw new Error(`GET ${path}: ${status} ${message(body)}${hint}`);
  }

  async get(namespace: string, name: string, signal?: AbortSignal): Promise<Lease | undefined> {
    const path = `${leases(namespace)}/${encodeURIComponent(name)}`;
    const { status, body } = await this.#get(path, signal);
    if (status === 403 || status === 404) {
      return undefined;
    }
    if (status === 200) {
      return parse<Lease>(path, body);
    }
    throw new Error(`GET ${path}: ${status} ${message(body)}`);
  }

  async #get(path: string, signal?: AbortSignal): Promise<{ status: number; body: string }> {
    const token = readToken(this.#options);
    const late = AbortSignal.timeout(API_TIMEOUT_MS);
    // Node.js 20 has no AbortSignal.any before 20.3.
    const either = new AbortController();
    const abort = (): void => either.abort();
    late.addEventListener("abort", abort);
    signal?.addEventListener("abort", abort);
    try {
      signal?.throwIfAborted();
      const response = await new Promise<IncomingMessage>((resolve, reject) => {
        requestHttps(
          {
            host: this.#url.host,
            path: this.#url.pathname.replace(/\/$/, "") + path,
            headers: { accept: "application/json", ...(token !== undefined && { authorization: `Bearer ${token}` }) },
            // Each request opens a connection: requests are rare, and rotated certificates apply at once.
            createConnection: () => this.#context.open(this.#url),
            signal: either.signal,
          },
          resolve,
        )
          .on("error", reject)
          .end();
      });
      let body = "";
      for await (const chunk of response.setEncoding("utf8") as AsyncIterable<string>) {
        body += chunk;
        if (body.length > MAX_ANSWER) {
          throw new Error(`more than ${MAX_ANSWER} bytes`);
        }
      }
      return { status: response.statusCode ?? 0, body };
    } catch (error) {
      const why = late.aborted ? `timed out after ${API_TIMEOUT_MS} ms` : (error as Error).message;
      throw new Error(`GET ${path} of ${this.#url.host}: ${why}`, { cause: error });
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }
}

function leases(namespace: string): string {
  return `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
}

function parse<T>(path: string, body: string): T {
  try {
    return JSON.parse(body) as T;
  } catch (error) {
    throw new Error(`GET ${path}: decode the Leases: ${(error as Error).message}`, { cause: error });
  }
}

function message(body: string): string {
  try {
    return (JSON.parse(body) as { message?: string }).message ?? "";
  } catch {
    return "";
  }
}

/** Returns the URL of the API server and the options of the pod's service account. It works only in a pod. */
export function inCluster(): { server: string; options: Options & { caFile: string; tokenFile: string } } {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
  if (!host || !port) {
    throw new Error("not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset");
  }
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  return { server, options: { caFile: `${POD}/ca.crt`, tokenFile: `${POD}/token` } };
}

/** A running Coxswain that serves the admin API. */
export interface Replica {
  /** Host and port of the replica's admin API. */
  address: string;
  /** Name of the replica's Lease; empty if the replica was not found by a Lease. */
  name: string;
  /** Identity in the leader election; empty if the replica was not found by a Lease. */
  identity: string;
  /** CA (PEM) in the replica's Lease; empty if the Lease contains none. Any account that can write Leases can set it. */
  authority: string;
  /** True if the replica holds the leader-election Lease. */
  leads: boolean;
}

/** Contains the result of reading the Leases. */
export interface Replicas {
  /**
   * Replicas to call: the leader first, then the others by identity. It contains replicas with expired Leases only if all
   * Leases are expired, because this machine's clock may be wrong.
   */
  candidates: Replica[];
  /** Descriptions of the other replicas, with the reasons why they are not called. */
  passedOver: string[];
  /**
   * Identity of the Lease's holder, which may be a kube-controller-manager; empty if the Lease has no holder, or the caller
   * cannot read the Lease.
   */
  holder: string;
}

/** Settings of a `Finder`. */
export interface FinderOptions {
  /** Reads the replicas' Leases. */
  leases?: Leases;
  /** Addresses ("host:port") of replicas, to set instead of `leases`. One address is enough to find the leader. */
  addresses?: string[];
  /** The caller's credentials, and CAs to trust regardless of Leases. */
  options?: Options;
  /**
   * File with the CAs (PEM) of the cluster's API server. They are trusted if neither `options` nor the replica's Lease
   * contains a CA. These CAs also sign certificates of nodes, so a token is sent only to a server with a certificate for
   * `CERTIFICATE_NAME` that is not a node's.
   */
  clusterCaFile?: string;
  /**
   * Allows sending a token to a replica whose CA only its own Lease contains. Any account that can write Leases in
   * kube-system can then steal the token. A client certificate cannot be stolen and does not require this.
   */
  trustAnnounced?: boolean;
  /** Name of the leader-election Lease [default: `kube-controller-manager`]. */
  leaseName?: string;
  /** Namespace of the leader-election Lease [default: `kube-system`]. */
  leaseNamespace?: string;
  /** Returns the time in milliseconds [default: this machine's clock]. */
  now?: () => number;
}

/** The replica is not trusted with the caller's token. */
export class NotVouchedForError extends Error {
  override readonly name = "NotVouchedForError";

  constructor() {
    super(
      "refusing to send a token: nothing but the replica's own Lease confirms the replica's identity; set caFile, " +
        "serverName, a client certificate, clusterCaFile or trustAnnounced",
    );
  }
}

/** Finds the replicas and connects to them, without sending a token to an untrusted server. */
export class Finder {
  readonly #settings: FinderOptions;

  constructor(settings: FinderOptions) {
    if ((settings.leases === undefined) === ((settings.addresses ?? []).length === 0)) {
      throw new Error("set exactly one of leases and addresses");
    }
    this.#settings = settings;
  }

  /** Reads the Leases and returns the replicas to call. */
  async replicas(signal?: AbortSignal): Promise<Replicas> {
    const { leases, addresses = [], now = Date.now } = this.#settings;
    const { leaseName: name = DEFAULT_LEASE.name, leaseNamespace: namespace = DEFAULT_LEASE.namespace } = this.#settings;
    if (leases === undefined) {
      return { candidates: addresses.map(named), passedOver: [], holder: "" };
    }
    const listed = await leases.list(REPLICA_NAMESPACE, REPLICA_SELECTOR, signal);
    // Without this Lease, each replica returns the leader.
    const main = await leases.get(namespace, name, signal);
    return choose(listed, `${namespace}/${name}`, main?.spec?.holderIdentity ?? "", now());
  }

  /**
   * Returns a client of a replica, with the credentials that the replica is trusted with. Throws `NotVouchedForError` if the
   * replica is not trusted with the caller's only credentials.
   */
  connect(replica: Replica): AdminClient {
    checkAddress(replica.address);
    const { options = {}, clusterCaFile } = this.#settings;
    const decision = decide(this.#facts(replica));
    if (decision === undefined) {
      throw new NotVouchedForError();
    }
    const { token, tokenFile, ...rest } = options;
    const shown: Options = decision.sendToken ? { ...options } : rest;
    if (decision.voucher === "cluster" && clusterCaFile !== undefined) {
      shown.caFile = clusterCaFile;
    }
    if (decision.name === "coxswain") {
      return connectRefusingNodes(replica.address, { ...shown, serverName: CERTIFICATE_NAME });
    }
    if (shown.serverName?.toLowerCase() === CERTIFICATE_NAME) {
      return connectRefusingNodes(replica.address, shown);
    }
    if (decision.voucher !== "announcement") {
      return connect(replica.address, shown);
    }
    try {
      return connect(replica.address, { ...shown, ca: replica.authority });
    } catch (error) {
      const why = (error as Error).message;
      throw new Error(`load the CA in the Lease of ${describe(replica)}: ${why}`, { cause: error });
    }
  }

  /** Returns a hint for a replica that is unreachable because its CA or name is not trusted. */
  hint(replica: Replica): string {
    const { voucher, name } = decide(this.#facts(replica)) ?? {};
    const setAside = replica.authority !== "" && voucher !== "announcement" && voucher !== "authority";
    const announced = " (with a token, the CA in the replica's Lease is not trusted; set trustAnnounced to trust it)";
    const byName = ` (with clusterCaFile, a token is sent only to a server with a certificate for ${CERTIFICATE_NAME})`;
    return (setAside ? announced : "") + (name === "coxswain" ? byName : "");
  }

  #facts(replica: Replica): Facts {
    const { options = {}, addresses = [], clusterCaFile, trustAnnounced = false } = this.#settings;
    return {
      authority: options.caFile !== undefined || options.ca !== undefined,
      trustAnnounced,
      // The leader's address from a named replica is not named by the user, because it comes from a Lease.
      named: addresses.includes(replica.address) || options.serverName !== undefined,
      announced: replica.authority !== "",
      clusterAuthority: clusterCaFile !== undefined,
      token: hasToken(options),
      certificate: options.certFile !== undefined,
    };
  }
}

/** Returns a replica that was not found by a Lease. */
export function named(address: string): Replica {
  return { address, name: "", identity: "", authority: "", leads: false };
}

/** Returns the identity and the address of a replica. */
export function describe({ identity, address }: Replica): string {
  return identity === "" ? address : `${identity} at ${address}`;
}

/**
 * Facts that determine trust.
 *
 * Any account that can write Leases in kube-system can announce a replica with its own address and CA. An announcement is
 * therefore sufficient for a client certificate, which a server cannot steal, but not for a token. The command line has the
 * same rules, which a test compares.
 */
export interface Facts {
  /** The user set a CA. */
  authority: boolean;
  /** The user allows sending a token to a replica that only its Lease identifies. */
  trustAnnounced: boolean;
  /** The user set the server's address or name. */
  named: boolean;
  /** The replica's Lease contains a CA. */
  announced: boolean;
  /** The user set the cluster's CA. */
  clusterAuthority: boolean;
  /** The caller has a token. */
  token: boolean;
  /** The caller has a client certificate. */
  certificate: boolean;
}

/** The source of the CA that verifies a server, and whether the token is sent. */
export interface Decision {
  voucher: "authority" | "announcement" | "cluster" | "system";
  sendToken: boolean;
  /** Name to expect in the certificate: the host of the address or `serverName`, or `CERTIFICATE_NAME`. */
  name: "address" | "coxswain";
}

/** Returns the decision; `undefined` if the caller has only a token and the server is not trusted with it. */
export function decide(facts: Facts): Decision | undefined {
  // A caller without a token can call any server, because no credential can be stolen.
  const givesNothingAway = facts.certificate || !facts.token;
  const [voucher, vouched] = vouch(facts, givesNothingAway);
  const sendToken = facts.token && vouched;
  // The cluster's CA also signs for nodes: a token is sent only to a server with Coxswain's name, unless the user set the
  // server. With a client certificate, the host of the address is sufficient.
  const name = voucher === "cluster" && !facts.named && !givesNothingAway ? "coxswain" : "address";
  return sendToken || givesNothingAway ? { voucher, sendToken, name } : undefined;
}

function vouch(facts: Facts, givesNothingAway: boolean): [Decision["voucher"], boolean] {
  if (facts.authority) {
    return ["authority", true];
  }
  if (facts.announced && (facts.trustAnnounced || givesNothingAway)) {
    return ["announcement", facts.trustAnnounced];
  }
  if (facts.clusterAuthority) {
    return ["cluster", facts.named || !givesNothingAway];
  }
  // The system's CAs sign for any owner of a name, so the user must have set this server.
  return ["system", facts.named];
}

/**
 * Returns the leader-election Lease of a replica. Replicas of older versions do not announce it: it is the Lease that the
 * replica holds, or else the default one.
 */
function leadsBy({ metadata, spec }: Lease, main: string, holder: string): string {
  const [lease, identity] = (metadata?.annotations?.[LEASE] ?? "").split(" ");
  // An annotation with another identity is left over from a predecessor.
  if (lease !== undefined && identity === spec?.holderIdentity) {
    return lease;
  }
  return spec?.holderIdentity === holder ? main : `${DEFAULT_LEASE.namespace}/${DEFAULT_LEASE.name}`;
}

/** Returns the replicas to call, among those with the leader-election Lease `main`. */
export function choose(leases: Lease[], main: string, holder: string, now: number): Replicas {
  const alive: Replica[] = [];
  const silent: { since: number; replica: Replica }[] = [];
  const passedOver: string[] = [];
  for (const lease of leases) {
    const { metadata, spec } = lease;
    const identity = spec?.holderIdentity ?? "";
    // A Lease without a holder was released: its replica has stopped.
    if (identity === "") {
      continue;
    }
    const other = leadsBy(lease, main, holder);
    if (other !== main) {
      passedOver.push(`${identity} uses another leader-election Lease, ${other}`);
      continue;
    }
    const address = metadata?.annotations?.[ADDRESS] ?? "";
    if (address === "") {
      passedOver.push(`${identity} does not serve the admin API`);
      continue;
    }
    const authority = metadata?.annotations?.[AUTHORITY] ?? "";
    const replica = { address, name: metadata?.name ?? "", identity, authority, leads: identity === holder };
    const renewed = spec?.renewTime;
    const since = renewed == null ? Infinity : now - new Date(renewed).getTime();
    if (since <= (spec?.leaseDurationSeconds ?? 0) * 1000) {
      alive.push(replica);
      continue;
    }
    silent.push({ since, replica });
    const never = since === Infinity;
    const seconds = `has not renewed its Lease for ${Math.trunc(since / 1000)}s`;
    passedOver.push(`${identity} ${never ? "has never renewed its Lease" : seconds}`);
  }
  alive.sort((a, b) => Number(b.leads) - Number(a.leads) || compare(a.identity, b.identity));
  silent.sort((a, b) => compare(a.since, b.since) || compare(a.replica.identity, b.replica.identity));
  const candidates = alive.length > 0 ? alive : silent.map(({ replica }) => replica);
  return { candidates, passedOver: passedOver.sort(compare), holder };
}

function compare<T>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function checkAddress(address: string): void {
  const [, host = "", port = ""] = /^(.*):([0-9]{1,5})$/.exec(address) ?? [];
  const isHost = host.startsWith("[") ? host.endsWith("]") && isIPv6(host.slice(1, -1)) : HOST.test(host);
  if (!isHost || Number(port) < 1 || Number(port) > 65535) {
    throw new Error(`replica address ${JSON.stringify(address)}: expected HOST:PORT`);
  }
}
