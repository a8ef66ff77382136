import { Metadata, type ServerDuplexStream, status } from '@grpc/grpc-js';
import type { Packet } from '@isthmus/proto';
import type { AgentIdentifiers, PlaneEvents } from '@isthmus/tunnel';
import { parseIdentifiers } from '../identifiers.ts';
import type { PacketChannel } from '../packets/channel.ts';
import { refuse, serverChannel } from './channel.ts';
import { type GrpcPeer, peerOf } from './peer.ts';
import { CONNECT_METHOD, type GrpcService, packetMethod, type Received } from './service.ts';

/** How long it may take to find out whether a token holds, in milliseconds. */
const AUTHENTICATE_MS = 10_000;

const SCHEME = 'Bearer ';

/** An agent that was let in. Nothing is read from its channel until someone starts it. */
export interface PacketAgent {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly peer: GrpcPeer;
  readonly channel: PacketChannel;
}

export interface AgentServiceOptions {
  readonly serverId: string;
  readonly serverCount: () => number;
  readonly events: PlaneEvents;
  /** Rejects for a token that does not hold. Unset: agents need none. */
  readonly authenticate?: (token: string, signal: AbortSignal) => Promise<void>;
  readonly onAgent: (agent: PacketAgent) => void;
}

/** The Go agents' edge: each holds one stream, over which all its tunnels go. */
export function agentService(options: AgentServiceOptions): GrpcService {
  return {
    definition: packetMethod('Connect', CONNECT_METHOD),
    implementation: { Connect: (call: ServerDuplexStream<Received, Packet>) => void admit(call, options) },
  };
}

/** An agent that may not in, with the status it is told. */
class Refusal extends Error {
  readonly code: status;

  constructor(code: status, message: string) {
    super(message);
    this.code = code;
  }
}

async function admit(call: ServerDuplexStream<Received, Packet>, options: AgentServiceOptions): Promise<void> {
  const { serverId, serverCount, events, onAgent } = options;
  const peer = peerOf(call);
  const channel = serverChannel(call, peer.remote);
  try {
    const agentId = readAgentId(call.metadata);
    const identifiers = readIdentifiers(call.metadata);
    await authenticate(call, options);
    if (call.cancelled) return;
    // Agents wait for these two before anything else.
    const answer = new Metadata();
    answer.set('serverid', serverId);
    answer.set('servercount', String(serverCount()));
    call.sendMetadata(answer);
    onAgent({ agentId, identifiers, peer, channel });
  } catch (error) {
    const { message } = error as Error;
    events.emit('refused', 'grpc agents', peer.remote, error as Error);
    refuse(call, error instanceof Refusal ? error.code : status.INTERNAL, message);
  }
}

function readAgentId(metadata: Metadata): string {
  const ids = values(metadata, 'agentid');
  if (ids.length === 1) return ids[0] as string;
  throw new Refusal(status.INVALID_ARGUMENT, `expected one agent ID in the context, got [${ids.join(' ')}]`);
}

function readIdentifiers(metadata: Metadata): AgentIdentifiers {
  const queries = values(metadata, 'agentidentifiers');
  if (queries.length > 1) {
    const shown = queries.join(' ');
    throw new Refusal(
      status.INVALID_ARGUMENT,
      `expected at most one set of agent identifiers in the context, got [${shown}]`,
    );
  }
  try {
    return parseIdentifiers(queries[0] ?? '');
  } catch (error) {
    throw new Refusal(status.INVALID_ARGUMENT, (error as Error).message);
  }
}

/** Node joins header fields of the same name by `, ` (RFC 9110 section 5.3), which stands in no id and no query. */
function values(metadata: Metadata, key: string): string[] {
  return metadata.get(key).flatMap((value) => String(value).split(', '));
}

async function authenticate({ metadata }: { metadata: Metadata }, options: AgentServiceOptions): Promise<void> {
  if (!options.authenticate) return;
  const [value] = metadata.get('authorization');
  if (typeof value !== 'string') {
    throw new Refusal(status.UNAUTHENTICATED, 'Authentication context was not found in metadata');
  }
  if (!value.startsWith(SCHEME)) {
    throw new Refusal(status.UNAUTHENTICATED, `received token does not have "${SCHEME}" prefix`);
  }
  try {
    await options.authenticate(value.slice(SCHEME.length), AbortSignal.timeout(AUTHENTICATE_MS));
  } catch (error) {
    const why = (error as Error).message;
    throw new Refusal(status.UNAUTHENTICATED, `Failed to validate authentication token, err:${why}`);
  }
}
