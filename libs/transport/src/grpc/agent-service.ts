import type { AgentIdentifiers, PlaneEvents } from '@isthmus/tunnel';
import { parseIdentifiers } from '../identifiers.ts';
import type { PacketChannel } from '../packets/channel.ts';
import type { ServerCall } from './call.ts';
import type { Metadata } from './metadata.ts';
import type { GrpcPeer } from './peer.ts';
import { CONNECT_METHOD, type GrpcService } from './service.ts';
import { StatusError } from './status.ts';

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
  return { path: CONNECT_METHOD, serve: (call) => void admit(call, options) };
}

async function admit(call: ServerCall, options: AgentServiceOptions): Promise<void> {
  const { serverId, serverCount, events, onAgent } = options;
  const { metadata, peer } = call;
  try {
    const agentId = readAgentId(metadata);
    const identifiers = readIdentifiers(metadata);
    await authenticate(metadata, options);
    if (call.over) return;
    // Agents wait for these two before anything else.
    call.respond([
      ['serverid', serverId],
      ['servercount', String(serverCount())],
    ]);
    onAgent({ agentId, identifiers, peer, channel: call });
  } catch (error) {
    events.emit('refused', 'grpc agents', peer.remote, error as Error);
    call.fail(error instanceof StatusError ? error : new StatusError('Internal', (error as Error).message));
  }
}

function readAgentId(metadata: Metadata): string {
  const ids = metadata.get('agentid');
  if (ids.length === 1) return ids[0] as string;
  throw new StatusError('InvalidArgument', `expected one agent ID in the context, got [${ids.join(' ')}]`);
}

function readIdentifiers(metadata: Metadata): AgentIdentifiers {
  const queries = metadata.get('agentidentifiers');
  if (queries.length > 1) {
    const shown = queries.join(' ');
    throw new StatusError(
      'InvalidArgument',
      `expected at most one set of agent identifiers in the context, got [${shown}]`,
    );
  }
  try {
    return parseIdentifiers(queries[0] ?? '');
  } catch (error) {
    throw new StatusError('InvalidArgument', (error as Error).message);
  }
}

async function authenticate(metadata: Metadata, options: AgentServiceOptions): Promise<void> {
  if (!options.authenticate) return;
  const value = metadata.first('authorization');
  if (value === undefined) {
    throw new StatusError('Unauthenticated', 'Authentication context was not found in metadata');
  }
  if (!value.startsWith(SCHEME)) {
    throw new StatusError('Unauthenticated', `received token does not have "${SCHEME}" prefix`);
  }
  try {
    await options.authenticate(value.slice(SCHEME.length), AbortSignal.timeout(AUTHENTICATE_MS));
  } catch (error) {
    const why = (error as Error).message;
    throw new StatusError('Unauthenticated', `Failed to validate authentication token, err:${why}`);
  }
}
