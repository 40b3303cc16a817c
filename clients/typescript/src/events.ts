/** How far a stream of events has been shown, so that another stream goes on from there. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";

import type { StreamEventsRequestSchema, StreamEventsResponse } from "./gen/coxswain/admin/v1/events_pb.js";

/** What is asked of StreamEvents. */
export type EventsRequest = MessageInitShape<typeof StreamEventsRequestSchema>;

/** A position in the log of a replica, and in time for the log of another one. */
export class Position {
  readonly #request: EventsRequest;
  /** Log and number of the last event; undefined before the first. */
  #last: { logId: string; sequence: bigint } | undefined;
  #logId = "";
  /** When the newest event took place that was shown. */
  #latest: number;
  /** Whether the past is being sent, and whether it is that of another replica. */
  #replaying = false;
  #catchingUp = false;

  constructor(request: EventsRequest, now: number) {
    this.#request = request;
    this.#latest = now;
  }

  get replayOnly(): boolean {
    return this.#request.replayOnly ?? false;
  }

  /** The request of the stream that goes on from here. */
  request(): EventsRequest {
    this.#replaying = true;
    if (this.#last === undefined) {
      return this.#request;
    }
    const { logId, sequence } = this.#last;
    return { ...this.#request, logId, start: { case: "sinceSequence", value: sequence } };
  }

  /** Has the next stream begin with all that the log of another replica has. */
  forgetLog(): void {
    this.#last = { logId: "", sequence: 0n };
    this.#catchingUp = true;
  }

  /** Takes note of an answer. Returns whether it is to be shown. */
  take({ item }: StreamEventsResponse): boolean {
    switch (item.case) {
      case "started":
        this.#logId = item.value.logId;
        if (this.#last !== undefined && this.#last.logId !== this.#logId) {
          this.#last = { logId: this.#logId, sequence: 0n };
        }
        break;
      case "event": {
        this.#goOnTo(item.value.sequence);
        const at = item.value.time === undefined ? this.#latest : timestampMs(item.value.time);
        if (this.#catchingUp && at < this.#latest) {
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

  /** Whether an answer of the present tells that the replica no longer leads. */
  hasMoved({ item }: StreamEventsResponse): boolean {
    const details = item.case === "event" ? item.value.details : undefined;
    return !this.#replaying && details?.case === "leadershipChanged" && !details.value.leading;
  }

  #goOnTo(sequence: bigint): void {
    const before = this.#last?.sequence ?? 0n;
    this.#last = { logId: this.#logId, sequence: sequence > before ? sequence : before };
  }
}
