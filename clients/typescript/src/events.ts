/** Tracks the position in a stream of events, so that another stream can resume from it. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";

import { EventType, Severity, type StreamEventsRequestSchema, type StreamEventsResponse } from "./gen/coxswain/admin/v1/events_pb.js";

/**
 * The supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica 30 seconds from the
 * clock of the API server.
 */
const CLOCK_OFFSET_MS = 60_000;
/** Maximum number of logs of former leaders in a position. */
const MAX_FORMER_LOGS = 16;

/** Request of StreamEvents. */
export type EventsRequest = MessageInitShape<typeof StreamEventsRequestSchema>;

/** A position in the log of a replica, and in time for the log of another replica. */
export class Position {
  readonly #request: EventsRequest;
  /** Log and sequence number of the last event; undefined before the first event. */
  #last: { logId: string; sequence: bigint } | undefined;
  #logId = "";
  /** Positions in the logs of former leaders, oldest first, and the last sequence number that was shown of this log. */
  readonly #former = new Map<string, bigint>();
  #shown = 0n;
  /** Time of the last shown event, and the time before which events are hidden while catching up. */
  #latest: number;
  #oldest: number;
  /** Whether past events are being sent, and whether they are those of another replica. */
  #replaying = false;
  #catchingUp = false;

  constructor(request: EventsRequest, now: number) {
    this.#request = request;
    this.#latest = now;
    this.#oldest = now;
  }

  get replayOnly(): boolean {
    return this.#request.replayOnly ?? false;
  }

  /** True if the next stream starts at the position of the caller's request. */
  get isCallers(): boolean {
    return this.#last === undefined;
  }

  /**
   * True if the filter excludes LeadershipChanged events, which have no controller, no object and severity INFO.
   */
  get leavesLeadershipOut(): boolean {
    const { controllers = [], namespaces = [], objects = [], types = [], minSeverity = 0 } = this.#request.filter ?? {};
    const about = controllers.length + namespaces.length + objects.length > 0;
    const leavesOut = about || minSeverity > Severity.INFO || (types.length > 0 && !types.includes(EventType.LEADERSHIP_CHANGED));
    return leavesOut && !this.replayOnly;
  }

  /** Returns the request that resumes the stream from this position. */
  request(): EventsRequest {
    this.#replaying = true;
    if (this.#last === undefined) {
      return this.#request;
    }
    const { logId, sequence } = this.#last;
    return { ...this.#request, logId, start: { case: "sinceSequence", value: sequence } };
  }

  /** Returns the request for the remaining events in the replica's log, without new events. */
  rest(): EventsRequest {
    return { ...this.request(), replayOnly: true };
  }

  /** Makes the next stream start with all events in the log of another replica. */
  forgetLog(): void {
    if (this.#last !== undefined) {
      this.#former.delete(this.#last.logId);
      this.#former.set(this.#last.logId, this.#last.sequence);
    }
    for (const logId of this.#former.keys()) {
      if (this.#former.size > MAX_FORMER_LOGS) {
        this.#former.delete(logId);
      }
    }
    this.#oldest = this.#latest - CLOCK_OFFSET_MS;
    this.#last = { logId: "", sequence: 0n };
    this.#catchingUp = true;
  }

  /** Updates the position by a response. Returns true if the response is to be shown. */
  take({ item }: StreamEventsResponse): boolean {
    switch (item.case) {
      case "started":
        this.#logId = item.value.logId;
        if (this.#last !== undefined && this.#last.logId !== this.#logId) {
          this.#last = { logId: this.#logId, sequence: 0n };
          this.#shown = this.#former.get(this.#logId) ?? 0n;
        }
        break;
      case "event": {
        this.#goOnTo(item.value.sequence);
        const at = item.value.time === undefined ? this.#latest : timestampMs(item.value.time);
        if (this.#catchingUp && (item.value.sequence <= this.#shown || at < this.#oldest)) {
          return false;
        }
        this.#latest = at;
        break;
      }
      case "dropped":
        this.#goOnTo(item.value.lastSequence);
        break;
      case "replayFinished":
        this.#goOnTo(item.value.sequence);
        this.#replaying = false;
        this.#catchingUp = false;
        break;
    }
    return true;
  }

  /** Returns true if a new event shows that the replica no longer leads. */
  hasMoved(answer: StreamEventsResponse): boolean {
    return !this.#replaying && isDeposed(answer);
  }

  #goOnTo(sequence: bigint): void {
    const before = this.#last?.sequence ?? 0n;
    this.#last = { logId: this.#logId, sequence: sequence > before ? sequence : before };
  }
}

/** Returns the request for new LeadershipChanged events only. */
export function leadership(): EventsRequest {
  return { filter: { types: [EventType.LEADERSHIP_CHANGED] } };
}

/** Returns true if a response shows that its replica does not lead. */
export function isDeposed({ item }: StreamEventsResponse): boolean {
  const details = item.case === "event" ? item.value.details : undefined;
  return details?.case === "leadershipChanged" && !details.value.leading;
}
