/** Connections to one replica. */

import { createClient, type Client, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { hasToken, type Options, readToken, RotatingContext } from "./credentials.js";
import { ControllerService } from "./gen/coxswain/admin/v1/controllers_pb.js";
import { EventService } from "./gen/coxswain/admin/v1/events_pb.js";
import { LeaderService } from "./gen/coxswain/admin/v1/leader_pb.js";
import { QueueService } from "./gen/coxswain/admin/v1/queues_pb.js";

export type { Options } from "./credentials.js";

/** Contains all services of one replica. */
export interface AdminClient {
  readonly controllers: Client<typeof ControllerService>;
  readonly events: Client<typeof EventService>;
  readonly leader: Client<typeof LeaderService>;
  readonly queues: Client<typeof QueueService>;
  /** The transport, for services outside this API, such as health and reflection. */
  readonly transport: Transport;
  /** Closes the connection and cancels its calls. An open connection keeps the process running for up to 15 minutes. */
  close(): void;
}

/** Returns a client of the replica at `address` ("host:port"). The first call opens the connection. */
export function connect(address: string, options: Options = {}): AdminClient {
  return connectBy(new RotatingContext(options), address, options);
}

/** Returns a client like `connect`, which rejects a server with the certificate of a node. */
export function connectRefusingNodes(address: string, options: Options): AdminClient {
  return connectBy(new RotatingContext(options, true), address, options);
}

function connectBy(context: RotatingContext, address: string, options: Options): AdminClient {
  const baseUrl = `https://${address}`;
  const sessionManager = new Http2SessionManager(
    baseUrl,
    { pingIntervalMs: 30_000 },
    // Each connection reads the files; TLS options would be read only once.
    { createConnection: (url: URL) => context.open(url, "h2") },
  );
  const interceptors = hasToken(options) ? [bearer(() => readToken(options))] : [];
  const transport = createGrpcTransport({ baseUrl, interceptors, sessionManager });
  return {
    controllers: createClient(ControllerService, transport),
    events: createClient(EventService, transport),
    leader: createClient(LeaderService, transport),
    queues: createClient(QueueService, transport),
    transport,
    close: () => sessionManager.abort(),
  };
}

/** Sends a token with every call. */
function bearer(token: () => string | undefined): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token()}`);
    return next(request);
  };
}
