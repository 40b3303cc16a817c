/** Which replicas there are, by the Leases that they keep, and what each of them may see of the caller. */

import { type IncomingMessage } from "node:http";
import { request as requestHttps } from "node:https";
import { isIPv6 } from "node:net";

import { type AdminClient, connect, connectRefusingNodes } from "./connect.js";
import { hasToken, type Options, readToken, RotatingContext } from "./credentials.js";

const REPLICA_NAMESPACE = "kube-system";
const REPLICA_SELECTOR = "coxswain.dev/component=replica";
const ADDRESS = "coxswain.dev/admin-address";
const AUTHORITY = "coxswain.dev/admin-ca";
/** The Lease by which the replica leads, as `NAMESPACE/NAME`, and the replica's identity. */
const LEASE = "coxswain.dev/lease";
const DEFAULT_LEASE = { namespace: "kube-system", name: "kube-controller-manager" };
const POD = "/var/run/secrets/kubernetes.io/serviceaccount";
const API_TIMEOUT_MS = 10_000;
/** A Lease has some kilobytes at most. */
const MAX_ANSWER = 16 << 20;
/** What a host may look like. A Lease says where to call, so nothing may pass that belongs to another part of a URL. */
const HOST = /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/;

/** The name in the serving certificates of Coxswain that the cluster's CA signs, and in no certificate of a node. */
export const CERTIFICATE_NAME = "coxswain.kube-system.svc";

/** What counts here of a Lease (coordination.k8s.io/v1). Those of `@kubernetes/client-node` will do. */
export interface Lease {
  metadata?: { name?: string; annotations?: Record<string, string> };
  spec?: { holderIdentity?: string; renewTime?: string | Date | null; leaseDurationSeconds?: number };
}

/**
 * Reads Leases from the cluster. `ApiServer` does so; who has a client of the cluster already writes the two methods with
 * it.
 */
export interface Leases {
  /** Lists the Leases of a namespace that have a label. */
  list(namespace: string, labelSelector: string, signal?: AbortSignal): Promise<Lease[]>;
  /** Reads one Lease; `undefined` if there is none of this name, or if the caller may not read it. */
  get(namespace: string, name: string, signal?: AbortSignal): Promise<Lease | undefined>;
}

/** Reads Leases from the cluster's API server, over HTTPS and nothing else. */
export class ApiServer implements Leases {
  readonly #url: URL;
  readonly #options: Options;
  readonly #context: RotatingContext;

  /** `server` is "https://HOST[:PORT]". The files of `options` are read anew for every request. */
  constructor(server: string, options: Options = {}) {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    if (url?.protocol !== "https:" || url.hostname === "" || url.username !== "") {
      throw new Error(`${JSON.stringify(server)} is no API server: https://HOST[:PORT] is allowed`);
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
    const hint = status === 403 ? " (the Role coxswain-admin-discovery allows it)" : "";
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
    // Node.js 20 has no AbortSignal.any before 20.3, and this needs no more than either.
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
            // Each request has a connection of its own: they are rare, and rotated certificates count at once.
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
      const why = late.aborted ? `no answer within ${API_TIMEOUT_MS} ms` : (error as Error).message;
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
    throw new Error(`GET ${path}: no JSON of Leases: ${(error as Error).message}`, { cause: error });
  }
}

function message(body: string): string {
  try {
    return (JSON.parse(body) as { message?: string }).message ?? "";
  } catch {
    return "";
  }
}

/** Says, in a pod, where the API server is and who the pod's service account is there. */
export function inCluster(): { server: string; options: Options & { caFile: string; tokenFile: string } } {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
  if (!host || !port) {
    throw new Error("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set");
  }
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  return { server, options: { caFile: `${POD}/ca.crt`, tokenFile: `${POD}/token` } };
}

/** A running Coxswain that serves the admin API. */
export interface Replica {
  /** Host and port of its admin API. */
  address: string;
  /** The name of its Lease; empty if none told of it. */
  name: string;
  /** Its own name in the leader election; empty if no Lease told of it. */
  identity: string;
  /** Who vouches for it (PEM) by its Lease, which whoever may write Leases may have written; empty if nobody. */
  authority: string;
  /** Whether it holds the Lease by which the leader leads. */
  leads: boolean;
}

/** What the Leases tell. */
export interface Replicas {
  /**
   * Who may be called: the leader first, then the others by identity. Replicas that seem dead are among them only if all
   * do, for it may be this machine's clock.
   */
  candidates: Replica[];
  /** Who else there is, and why they are not called. */
  passedOver: string[];
  /** Who leads, a manager of another make perhaps; empty if nobody does, or if the caller may not know. */
  holder: string;
}

/** How to find replicas, and who one is there. */
export interface FinderOptions {
  /** Tells which replicas there are. */
  leases?: Leases;
  /** Names replicas ("host:port") in place of `leases`. The one that leads is found all the same, for each tells. */
  addresses?: string[];
  /** Who one is, and whom to trust whatever a Lease says. */
  options?: Options;
  /**
   * File with the cluster's authorities (PEM), those of the API server. They are trusted at a replica that neither
   * `options` nor its own Lease name an authority for. They sign the certificates of nodes as well, so a token goes only
   * to a certificate for `CERTIFICATE_NAME` that is not a node's.
   */
  clusterCaFile?: string;
  /**
   * Sends a token to a replica that only its own Lease vouches for. Whoever may write Leases in kube-system can then get
   * it. A client certificate gives nothing away, and needs no such consent.
   */
  trustAnnounced?: boolean;
  /** The Lease by which the leader leads; `kube-controller-manager` if not given. */
  leaseName?: string;
  /** The namespace of that Lease; `kube-system` if not given. */
  leaseNamespace?: string;
  /** The time in milliseconds; that of this machine if not given. */
  now?: () => number;
}

/** A replica that a token is not sent to. */
export class NotVouchedForError extends Error {
  override readonly name = "NotVouchedForError";

  constructor() {
    super(
      "only its Lease says that it is a replica, and a token is not sent on that alone: give caFile, serverName, a " +
        "client certificate, clusterCaFile, or trustAnnounced",
    );
  }
}

/** Finds the replicas, and connects to them as somebody whom it does not give away. */
export class Finder {
  readonly #settings: FinderOptions;

  constructor(settings: FinderOptions) {
    if ((settings.leases === undefined) === ((settings.addresses ?? []).length === 0)) {
      throw new Error("of leases and addresses exactly one is to be given");
    }
    this.#settings = settings;
  }

  /** Reads the Leases, and tells which replicas to call and which not. */
  async replicas(signal?: AbortSignal): Promise<Replicas> {
    const { leases, addresses = [], now = Date.now } = this.#settings;
    const { leaseName: name = DEFAULT_LEASE.name, leaseNamespace: namespace = DEFAULT_LEASE.namespace } = this.#settings;
    if (leases === undefined) {
      return { candidates: addresses.map(named), passedOver: [], holder: "" };
    }
    const listed = await leases.list(REPLICA_NAMESPACE, REPLICA_SELECTOR, signal);
    // Without it, those who answer know who leads.
    const main = await leases.get(namespace, name, signal);
    return choose(listed, `${namespace}/${name}`, main?.spec?.holderIdentity ?? "", now());
  }

  /** Makes a client of a replica, with the credentials that it may see; throws `NotVouchedForError` if that were none. */
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
      throw new Error(`with the authority that the Lease of ${describe(replica)} announces: ${why}`, { cause: error });
    }
  }

  /** Returns a hint for a replica that can't be reached because of the rule of trust. */
  hint(replica: Replica): string {
    const { voucher, name } = decide(this.#facts(replica)) ?? {};
    const setAside = replica.authority !== "" && voucher !== "announcement" && voucher !== "authority";
    const announced = " (the authority that its Lease announces is not trusted with a token, unless trustAnnounced is given)";
    const byName = ` (with clusterCaFile a token is sent only to a server with a certificate for ${CERTIFICATE_NAME})`;
    return (setAside ? announced : "") + (name === "coxswain" ? byName : "");
  }

  #facts(replica: Replica): Facts {
    const { options = {}, addresses = [], clusterCaFile, trustAnnounced = false } = this.#settings;
    return {
      authority: options.caFile !== undefined || options.ca !== undefined,
      trustAnnounced,
      // Not whom a named replica names as the leader: that address is what a Lease says.
      named: addresses.includes(replica.address) || options.serverName !== undefined,
      announced: replica.authority !== "",
      clusterAuthority: clusterCaFile !== undefined,
      token: hasToken(options),
      certificate: options.certFile !== undefined,
    };
  }
}

/** A replica that no Lease tells of. */
export function named(address: string): Replica {
  return { address, name: "", identity: "", authority: "", leads: false };
}

/** A replica in words. */
export function describe({ identity, address }: Replica): string {
  return identity === "" ? address : `${identity} at ${address}`;
}

/**
 * What decides about trust.
 *
 * Whoever may write Leases in kube-system may announce a replica, its address and its authority. So an announcement is
 * good for client certificates, which prove the caller without giving anything away, and not for tokens, which are the
 * caller to whoever holds them. The command line has the same rule; a test sees to that.
 */
export interface Facts {
  /** The user has named an authority. */
  authority: boolean;
  /** The user trusts announcements with a token. */
  trustAnnounced: boolean;
  /** The user has named the server. */
  named: boolean;
  /** The replica announces an authority. */
  announced: boolean;
  /** The user has named the cluster's authority. */
  clusterAuthority: boolean;
  /** The caller has a token. */
  token: boolean;
  /** The caller has a client certificate. */
  certificate: boolean;
}

/** Whose word it is that a server is who it says, and whether the token goes to it. */
export interface Decision {
  voucher: "authority" | "announcement" | "cluster" | "system";
  sendToken: boolean;
  /** The name that its certificate must have: the host of the address or `serverName`, or `CERTIFICATE_NAME`. */
  name: "address" | "coxswain";
}

/** Decides. `undefined` if nobody vouches for the server, and the token is all that the caller has. */
export function decide(facts: Facts): Decision | undefined {
  // Who has nothing to give away may ask anybody: the answer is a refusal.
  const givesNothingAway = facts.certificate || !facts.token;
  const [voucher, vouched] = vouch(facts, givesNothingAway);
  const sendToken = facts.token && vouched;
  // The cluster's CA vouches for nodes as well: only a server with Coxswain's name gets a token, unless the user has named
  // it. A client certificate needs no other name than that of the address.
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
  // The system's authorities vouch for names, and anybody may have one: the user has to have named this one.
  return ["system", facts.named];
}

/**
 * The Lease by which a replica leads. A replica of an older version announces none: it is the one that it holds, and else the
 * default one.
 */
function leadsBy({ metadata, spec }: Lease, main: string, holder: string): string {
  const [lease, identity] = (metadata?.annotations?.[LEASE] ?? "").split(" ");
  // An annotation with another identity is left over from a predecessor.
  if (lease !== undefined && identity === spec?.holderIdentity) {
    return lease;
  }
  return spec?.holderIdentity === holder ? main : `${DEFAULT_LEASE.namespace}/${DEFAULT_LEASE.name}`;
}

/** Decides whom to call of the replicas that lead by the Lease `main`. */
export function choose(leases: Lease[], main: string, holder: string, now: number): Replicas {
  const alive: Replica[] = [];
  const silent: { since: number; replica: Replica }[] = [];
  const passedOver: string[] = [];
  for (const lease of leases) {
    const { metadata, spec } = lease;
    const identity = spec?.holderIdentity ?? "";
    // A Lease without a holder was given up: its replica has ended.
    if (identity === "") {
      continue;
    }
    const other = leadsBy(lease, main, holder);
    if (other !== main) {
      passedOver.push(`${identity} leads by another Lease, ${other}`);
      continue;
    }
    const address = metadata?.annotations?.[ADDRESS] ?? "";
    if (address === "") {
      passedOver.push(`${identity} serves no admin API`);
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
    const seconds = `has given no sign of life for ${Math.trunc(since / 1000)}s`;
    passedOver.push(`${identity} ${never ? "has never given a sign of life" : seconds}`);
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
    throw new Error(`${JSON.stringify(address)} is no address of a replica: HOST:PORT is allowed`);
  }
}
