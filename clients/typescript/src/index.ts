/**
 * Connects to the admin API of Coxswain, a Kubernetes controller manager.
 *
 * The messages and services are generated and exported from here as well; what is written by hand is the small part
 * around them: TLS and credentials.
 */

import { readFileSync } from "node:fs";

import { createClient, type Client, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { ControllerService } from "./gen/coxswain/admin/v1/controllers_pb.js";
import { EventService } from "./gen/coxswain/admin/v1/events_pb.js";
import { LeaderService } from "./gen/coxswain/admin/v1/leader_pb.js";
import { QueueService } from "./gen/coxswain/admin/v1/queues_pb.js";

export * from "./gen/coxswain/admin/v1/controllers_pb.js";
export * from "./gen/coxswain/admin/v1/events_pb.js";
export * from "./gen/coxswain/admin/v1/leader_pb.js";
export * from "./gen/coxswain/admin/v1/queues_pb.js";
export * from "./gen/coxswain/admin/v1/types_pb.js";

/** Whom to trust and who one is. Without any, the system's authorities are trusted and no credentials shown. */
export interface Options {
  /** File with the authorities (PEM) that may vouch for the server. */
  caFile?: string;
  /** File with a client certificate (PEM), together with `keyFile`. */
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

/** All services of one replica. */
export interface AdminClient {
  readonly controllers: Client<typeof ControllerService>;
  readonly events: Client<typeof EventService>;
  readonly leader: Client<typeof LeaderService>;
  readonly queues: Client<typeof QueueService>;
  /** For services that are not of this API: health, reflection. */
  readonly transport: Transport;
}

/** Makes a client of the replica at `address` ("host:port"). The connection is made with the first call. */
export function connect(address: string, options: Options = {}): AdminClient {
  const { caFile, certFile, keyFile, token, tokenFile, serverName } = options;
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw new Error("of certFile and keyFile only one is given");
  }
  if (token !== undefined && tokenFile !== undefined) {
    throw new Error("token and tokenFile are both given");
  }
  const interceptors: Interceptor[] = [];
  if (token !== undefined) {
    interceptors.push(bearer(() => token));
  } else if (tokenFile !== undefined) {
    interceptors.push(bearer(() => readFileSync(tokenFile, "utf8").trim()));
  }
  const transport = createGrpcTransport({
    baseUrl: `https://${address}`,
    interceptors,
    pingIntervalMs: 30_000,
    nodeOptions: {
      minVersion: "TLSv1.2",
      ...(caFile !== undefined && { ca: readFileSync(caFile) }),
      ...(certFile !== undefined && { cert: readFileSync(certFile) }),
      ...(keyFile !== undefined && { key: readFileSync(keyFile) }),
      ...(serverName !== undefined && { servername: serverName }),
    },
  });
  return {
    controllers: createClient(ControllerService, transport),
    events: createClient(EventService, transport),
    leader: createClient(LeaderService, transport),
    queues: createClient(QueueService, transport),
    transport,
  };
}

/** Sends a token with every call. */
function bearer(token: () => string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token()}`);
    return next(request);
  };
}
