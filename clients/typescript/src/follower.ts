/** Sends calls to the current leader. */

import { setTimeout } from "node:timers/promises";

import { BinaryReader } from "@bufbuild/protobuf/wire";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError } from "@connectrpc/connect";

import { type AdminClient } from "./connect.js";
import { type EventsRequest, isDeposed, leadership, Position } from "./events.js";
import { type StreamEventsResponse } from "./gen/coxswain/admin/v1/events_pb.js";
import { type StepDownRequestSchema, type StepDownResponse } from "./gen/coxswain/admin/v1/leader_pb.js";
import { describe, type Finder, named, type Replica, type Replicas } from "./discovery.js";

const DOMAIN = "admin.coxswain.dev";
const NOT_LEADER = "NOT_LEADER";
const EVENT_LOG_CHANGED = "EVENT_LOG_CHANGED";
/** Codes of a stream whose replica stopped or whose connection was lost. */
const LOST = new Set([Code.Unavailable, Code.Unknown, Code.Internal, Code.Canceled, Code.Aborted]);
const DEPOSED = "the replica no longer leads";
const ENDED = "the replica closed the stream";
/** A live replica responds sooner. */
const PROBE_MS = 5_000;
/** An election takes seconds. Each pause is twice as long as the previous one. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;
/** Codes that Connect returns for a missing or lost connection. */
const AWAY = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Aborted, Code.Internal]);

/** Settings of a `Follower`. */
export interface FollowerOptions {
  /** Maximum number of attempts of a call [default: 10]. */
  attempts?: number;
  /** Waits for a number of milliseconds. Tests replace it. */
  pause?: (milliseconds: number, signal?: AbortSignal) => Promise<void>;
}

/** No leader was found. The cause is the last error. */
export class NoLeaderError extends Error {
  override readonly name = "NoLeaderError";
}

/** No replica responds. The call can be repeated, because nothing was sent. */
class UnreachableError extends Error {}

/** A client with the number of its calls. A retired session is closed after its last call. */
interface Session {
  readonly client: AdminClient;
  calls: number;
  retired: boolean;
}

/** The result of a search, for waiting calls. */
interface Search {
  error?: UnreachableError;
}

/** Ends a stream of events when its replica no longer leads, regardless of the stream's filter. */
class Guard {
  /** Ends the stream and the guard's stream. */
  readonly signal: AbortSignal;
  /** Whether the replica no longer leads, and the error for which the guard ended the stream. */
  isDeposed = false;
  error: unknown;
  readonly #over = new AbortController();

  constructor(client: AdminClient, signal: AbortSignal | undefined) {
    this.signal = signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
    void this.#run(client);
  }

  end(): void {
    this.#over.abort();
  }

  async #run(client: AdminClient): Promise<void> {
    try {
      for await (const answer of client.events.streamEvents(leadership(), { signal: this.signal })) {
        if (isDeposed(answer)) {
          this.isDeposed = true;
          break;
        }
      }
      this.error = new UnreachableError(this.isDeposed ? DEPOSED : ENDED);
    } catch (error) {
      this.error = error;
    }
    this.end();
  }
}

/** Sends calls to the current leader. The first call searches for the leader. */
export class Follower {
  readonly #finder: Finder;
  readonly #attempts: number;
  readonly #pause: (milliseconds: number, signal?: AbortSignal) => Promise<void>;
  #current: Session | undefined;
  /** The search in progress. */
  #search: Promise<Search> | undefined;
  #closed = false;

  constructor(finder: Finder, { attempts = 10, pause = wait }: FollowerOptions = {}) {
    this.#finder = finder;
    this.#attempts = attempts;
    this.#pause = pause;
  }

  /**
   * Runs `call` with a client of the leader, and with options that contain the remaining time of `timeoutMs` [default: 30
   * seconds].
   *
   * If the replica does not lead (NOT_LEADER), the follower searches for the leader and runs `call` again: after
   * NOT_LEADER, nothing was changed. It throws any other error unchanged, because the request may have been applied. After
   * a lost connection, the next call searches for the leader. `call` must make exactly one request, because it can run
   * several times. Throws `NoLeaderError` after the last attempt or at the timeout. Reading the Leases has a separate
   * timeout: an `ApiServer` has 10 seconds for each request.
   */
  async call<R>(
    call: (leader: AdminClient, options: CallOptions) => Promise<R>,
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<R> {
    const end = performance.now() + timeoutMs;
    // gRPC takes whole milliseconds.
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    const asked = new Set<string>();
    let longer = FIRST_PAUSE_MS;
    let next = "";
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(call, next, options);
      } catch (error) {
        const address = leaderAddress(error);
        if (address === undefined && !(error instanceof UnreachableError)) {
          throw error;
        }
        next = address ?? "";
        // A new address is called at once; otherwise the election is still in progress.
        const pause = next !== "" && !asked.has(next) ? 0 : longer;
        if (attempt >= this.#attempts || performance.now() + pause >= end) {
          throw new NoLeaderError(`no leader in ${attempt} attempts: ${(error as Error).message}`, { cause: error });
        }
        if (pause > 0) {
          await this.#pause(pause, signal);
          longer = Math.min(2 * longer, LONGEST_PAUSE_MS);
        }
        asked.add(next);
      }
    }
  }

  /**
   * Makes the current leader step down. The follower sends the request once. If another replica has become the leader in the
   * meantime, it throws the replica's error (LEADER_CHANGED), and no leader steps down. Throws `NoLeaderError` if no replica
   * leads.
   */
  async stepDown(
    request: MessageInitShape<typeof StepDownRequestSchema> = {},
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<StepDownResponse> {
    const end = performance.now() + timeoutMs;
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    let { expectedLeaderIdentity } = request;
    let next = "";
    if (expectedLeaderIdentity === undefined) {
      const ask = (client: AdminClient, call: CallOptions) => client.leader.getLeader({}, call);
      const { leader } = await this.call(ask, { timeoutMs, ...(signal && { signal }) });
      if (leader === undefined || leader.holderIdentity === "") {
        throw new NoLeaderError("the Lease has no holder");
      }
      expectedLeaderIdentity = leader.holderIdentity;
      if (!leader.leading) {
        this.#retire(this.#current);
        next = leader.adminAddress;
      }
    }
    const sent = { ...request, expectedLeaderIdentity };
    try {
      return await this.#once((client, call) => client.leader.stepDown(sent, call), next, options);
    } catch (error) {
      if (error instanceof UnreachableError) {
        throw new NoLeaderError(error.message, { cause: error });
      }
      throw error;
    }
  }

  /**
   * Streams events of the leader and yields each response.
   *
   * The follower resumes the stream at the leader when the replica stops, the connection is lost, the stream reaches its
   * maximum age, or a LeadershipChanged event shows that the replica no longer leads. In the same log, the stream resumes
   * after the last event. In the log of another replica, it resumes with the newer events. Because the clocks of two
   * replicas may differ, these include events that are up to 60 seconds older than the last one. Each stream starts with a
   * `started` response, and `dropped` responses report gaps.
   *
   * If the filter excludes LeadershipChanged events, a second stream reads them, and they are not yielded.
   *
   * The follower throws other errors unchanged, including EVENT_LOG_CHANGED: the leader does not have the log of the
   * request's `logId`, so the events since then are lost. In this case, call `followEvents` again without `logId`, and with
   * `sinceSequence` 0 for all events in the leader's log. Throws `NoLeaderError` if no replica resumes the stream.
   * `timeoutMs` limits each search for the leader. With `replayOnly`, it ends after the past events.
   */
  async *followEvents(
    request: EventsRequest = {},
    { timeoutMs = 30_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<StreamEventsResponse, void, undefined> {
    const position = new Position(request, Date.now());
    let longer = FIRST_PAUSE_MS;
    for (let attempt = 1; ; attempt++) {
      let lost: unknown;
      try {
        for await (const answer of this.#events(position, timeoutMs, signal)) {
          attempt = 0;
          longer = FIRST_PAUSE_MS;
          if (!position.take(answer)) {
            continue;
          }
          yield answer;
          if (position.hasMoved(answer)) {
            this.#retire(this.#current);
            throw new UnreachableError(DEPOSED);
          }
        }
        if (position.replayOnly) {
          return;
        }
        lost = new UnreachableError(ENDED);
      } catch (error) {
        signal?.throwIfAborted();
        if (reason(error) === EVENT_LOG_CHANGED && !position.isCallers) {
          position.forgetLog();
        } else if (!(error instanceof UnreachableError) && !isLost(error)) {
          throw error;
        }
        lost = error;
      }
      if (attempt >= this.#attempts) {
        throw new NoLeaderError(`no leader in ${attempt} attempts: ${(lost as Error).message}`, { cause: lost });
      }
      await this.#pause(longer, signal);
      longer = Math.min(2 * longer, LONGEST_PAUSE_MS);
    }
  }

  /** Yields the responses of one stream. If the stream is lost, its session is retired. */
  async *#events(position: Position, timeoutMs: number, signal: AbortSignal | undefined): AsyncGenerator<StreamEventsResponse> {
    const end = performance.now() + timeoutMs;
    const options = (): CallOptions => ({ timeoutMs: Math.max(Math.ceil(end - performance.now()), 1), ...(signal && { signal }) });
    const session = await this.#enter("", options);
    const guard = position.leavesLeadershipOut ? new Guard(session.client, signal) : undefined;
    const guarded = guard?.signal ?? signal;
    try {
      try {
        yield* session.client.events.streamEvents(position.request(), guarded && { signal: guarded });
      } catch (error) {
        if (guard?.error === undefined) {
          throw error;
        }
        if (guard.isDeposed) {
          // The guard may be ahead of the stream, so the rest of the log is read. Errors are ignored there.
          try {
            yield* session.client.events.streamEvents(position.rest(), signal && { signal });
          } catch {
            signal?.throwIfAborted();
          }
        }
        throw guard.error;
      }
      session.retired = true;
    } catch (error) {
      session.retired ||= error instanceof UnreachableError || isLost(error);
      throw error;
    } finally {
      guard?.end();
      session.calls--;
      if (session.retired) {
        this.#retire(session);
      }
    }
  }

  /** Closes the connection after the last call on it. Later calls fail. */
  close(): void {
    this.#closed = true;
    this.#retire(this.#current);
  }

  #retire(session: Session | undefined): void {
    if (session === undefined) {
      return;
    }
    session.retired = true;
    if (this.#current === session) {
      this.#current = undefined;
    }
    if (session.calls === 0) {
      session.client.close();
    }
  }

  async #enter(next: string, options: () => CallOptions): Promise<Session> {
    if (this.#closed) {
      throw new Error("the follower is closed");
    }
    // Without a session, only one of the concurrent calls searches for the leader.
    while (this.#current === undefined && this.#search !== undefined) {
      const { error } = await within(this.#search, options);
      if (error !== undefined) {
        throw error;
      }
      if (this.#closed) {
        throw new Error("the follower is closed");
      }
    }
    if (this.#current !== undefined) {
      this.#current.calls++;
      return this.#current;
    }
    let done = (_: Search): void => {};
    this.#search = new Promise((resolve) => (done = resolve));
    const search: Search = {};
    try {
      const found: Session = { client: await this.#find(next, options), calls: 1, retired: this.#closed };
      if (!found.retired) {
        this.#current = found;
      }
      return found;
    } catch (error) {
      // An error caused by this call's timeout or signal does not concern the other calls.
      if (error instanceof UnreachableError && (options().timeoutMs ?? 0) > 1) {
        search.error = error;
      }
      throw error;
    } finally {
      this.#search = undefined;
      done(search);
    }
  }

  async #once<R>(
    call: (leader: AdminClient, options: CallOptions) => Promise<R>,
    next: string,
    options: () => CallOptions,
  ): Promise<R> {
    const session = await this.#enter(next, options);
    try {
      return await call(session.client, options());
    } catch (error) {
      const lost = error instanceof ConnectError && error.code !== Code.DeadlineExceeded && AWAY.has(error.code);
      if (lost || leaderAddress(error) !== undefined) {
        session.retired = true;
      }
      throw error;
    } finally {
      session.calls--;
      if (session.retired) {
        this.#retire(session);
      }
    }
  }

  /** Connects to the leader: `next` if it is set, else by the Leases, else by a replica's response. */
  async #find(next: string, options: () => CallOptions): Promise<AdminClient> {
    const replicas = await this.#finder.replicas(options().signal);
    const others = replicas.candidates.filter(({ address }) => address !== next);
    const candidates = next === "" ? replicas.candidates : [at(replicas, next), ...others];
    const tried: string[] = [];
    const refusals: unknown[] = [];
    for (const candidate of candidates) {
      let replica = candidate;
      // The replica itself, then the leader that it returns.
      for (let hop = 0; hop < 2; hop++) {
        let client: AdminClient;
        try {
          client = this.#finder.connect(replica);
        } catch (error) {
          // An invalid Lease must not prevent calls to the other replicas.
          refusals.push(error);
          tried.push(`${describe(replica)}: ${(error as Error).message}`);
          break;
        }
        let leader: { leading: boolean; adminAddress: string };
        try {
          leader = await probe(client, options());
        } catch (error) {
          client.close();
          options().signal?.throwIfAborted();
          if (!(error instanceof ConnectError) || !AWAY.has(error.code)) {
            throw error;
          }
          tried.push(`${describe(replica)}: ${error.message}${this.#finder.hint(replica)}`);
          break;
        }
        if (leader.leading || leader.adminAddress === "" || leader.adminAddress === replica.address || hop > 0) {
          return client;
        }
        client.close();
        replica = at(replicas, leader.adminAddress);
      }
    }
    if (refusals.length > 0 && refusals.length === tried.length) {
      // Another attempt would fail in the same way.
      throw refusals[0];
    }
    tried.push(...replicas.passedOver);
    throw new UnreachableError(
      tried.length === 0
        ? "no Lease announces a replica that serves the admin API"
        : `no replica could be reached: ${tried.join("; ")}`,
    );
  }
}

async function wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, signal && { signal });
}

/** Waits for the search of another call, at most until this call's timeout. */
async function within(search: Promise<Search>, options: () => CallOptions): Promise<Search> {
  const { timeoutMs, signal } = options();
  const over = new AbortController();
  const late = async (): Promise<Search> => {
    await setTimeout(timeoutMs, undefined, { signal: signal ? AbortSignal.any([signal, over.signal]) : over.signal });
    return { error: new UnreachableError("timed out while another call was searching for the leader") };
  };
  try {
    return await Promise.race([search, late()]);
  } finally {
    over.abort();
  }
}

/** Returns the replica at an address that another replica returned. */
function at({ candidates }: Replicas, address: string): Replica {
  return candidates.find((replica) => replica.address === address) ?? named(address);
}

/** Reads the leader with a call that can be repeated, so that calls are not sent to an unreachable replica. */
async function probe(client: AdminClient, options: CallOptions): Promise<{ leading: boolean; adminAddress: string }> {
  const nobody = { leading: false, adminAddress: "" };
  try {
    const timeoutMs = Math.min(options.timeoutMs ?? PROBE_MS, PROBE_MS);
    return (await client.leader.getLeader({}, { ...options, timeoutMs })).leader ?? nobody;
  } catch (error) {
    // A caller without this permission continues, because the call itself shows the leader.
    if (error instanceof ConnectError && error.code === Code.PermissionDenied) {
      return nobody;
    }
    throw error;
  }
}

/** Returns the leader's address from the error of a replica that does not lead; empty if it is unknown. */
function leaderAddress(error: unknown): string | undefined {
  if (!(error instanceof ConnectError) || error.code !== Code.FailedPrecondition) {
    return undefined;
  }
  const info = infoOf(error);
  return info?.reason === NOT_LEADER ? (info.metadata.get("leader_address") ?? "") : undefined;
}

/** Returns the reason of an error of this API. */
function reason(error: unknown): string | undefined {
  return error instanceof ConnectError ? infoOf(error)?.reason : undefined;
}

function isLost(error: unknown): boolean {
  return error instanceof ConnectError && LOST.has(error.code);
}

/** Returns the ErrorInfo of an error of this API. */
function infoOf({ details }: ConnectError): ReturnType<typeof errorInfo> | undefined {
  for (const detail of details) {
    if ("type" in detail && detail.type === "google.rpc.ErrorInfo") {
      const info = errorInfo(detail.value);
      if (info.domain === DOMAIN) {
        return info;
      }
    }
  }
  return undefined;
}

/** Decodes a `google.rpc.ErrorInfo` without a package for it: a reason (1), a domain (2) and a map (3) of strings. */
function errorInfo(bytes: Uint8Array): { reason: string; domain: string; metadata: Map<string, string> } {
  const metadata = new Map<string, string>();
  const fields = strings(bytes, (entry) => {
    const { 1: key = "", 2: value = "" } = strings(entry);
    metadata.set(key, value);
  });
  return { reason: fields[1] ?? "", domain: fields[2] ?? "", metadata };
}

/** Returns the strings of a message by their field numbers; `inner` gets the content of field 3. */
function strings(bytes: Uint8Array, inner?: (bytes: Uint8Array) => void): Record<number, string> {
  const reader = new BinaryReader(bytes);
  const found: Record<number, string> = {};
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === 3 && inner !== undefined) {
      inner(reader.bytes());
    } else if (field === 1 || field === 2) {
      found[field] = reader.string();
    } else {
      reader.skip(type);
    }
  }
  return found;
}
