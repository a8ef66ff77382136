import { sourceOf } from '@isthmus/runtime';
import { type AgentIdentifiers, checkName, type PlaneEvents } from '@isthmus/tunnel';
import { AgentLimitError, refusedWhere } from '../agent-limit.ts';
import { type IdentifierLimits, parseIdentifiers } from '../identifiers.ts';
import type { PacketChannel } from '../packets/channel.ts';
import type { ServerCall } from './call.ts';
import type { GrpcPeer } from './grpc-peer.ts';
import type { Metadata } from './metadata.ts';
import { CONNECT_METHOD, type GrpcService } from './service.ts';
import { StatusError } from './status.ts';

const SCHEME = 'Bearer ';

/** An accepted agent. Nothing is read from its channel until it is started. */
export interface PacketAgent {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly peer: GrpcPeer;
  readonly channel: PacketChannel;
}

/** The peer that presents a token. */
export interface TokenBearer {
  /** Its source, as limits count it. */
  readonly source: string;
  /** Aborts when the peer has gone. */
  readonly signal: AbortSignal;
}

/** Rejects if the token is not valid, or could not be checked in time. */
export type Authenticate = (token: string, bearer: TokenBearer) => Promise<void>;

export interface AgentServiceOptions {
  readonly serverId: string;
  readonly serverCount: () => number;
  readonly events: PlaneEvents;
  /** Unset: agents need no token. */
  readonly authenticate?: Authenticate;
  readonly identifierLimits?: IdentifierLimits;
  /** Throws if the agent may have no further session. */
  readonly checkRoom?: (agentId: string) => void;
  readonly onAgent: (agent: PacketAgent) => void;
}

/** The Go agents' edge. Each agent has one stream, which carries all its tunnels. */
export function agentService(options: AgentServiceOptions): GrpcService {
  return { path: CONNECT_METHOD, serve: (call, admitted) => call.guarded(() => admit(call, admitted, options))() };
}

async function admit(call: ServerCall, admitted: () => void, options: AgentServiceOptions): Promise<void> {
  const { serverId, serverCount, events, onAgent } = options;
  const { metadata, peer } = call;
  try {
    const agentId = readAgentId(metadata);
    const identifiers = readIdentifiers(metadata, options);
    options.checkRoom?.(agentId);
    await authenticate(call, options);
    if (call.over) return;
    // Others may have connected meanwhile.
    options.checkRoom?.(agentId);
    admitted();
    // Agents wait for these two before anything else.
    call.respond([
      ['serverid', serverId],
      ['servercount', String(serverCount())],
    ]);
    onAgent({ agentId, identifiers, peer, channel: call });
  } catch (error) {
    const refusal = error as Error;
    call.fail(statusOf(refusal));
    events.emit('refused', refusedWhere(refusal, 'grpc agents'), peer.remote, refusal);
  }
}

function statusOf(error: Error): StatusError {
  if (error instanceof StatusError) return error;
  return new StatusError(error instanceof AgentLimitError ? 'ResourceExhausted' : 'Internal', error.message);
}

function readAgentId(metadata: Metadata): string {
  const ids = metadata.get('agentid');
  if (ids.length !== 1) {
    throw new StatusError('InvalidArgument', `expected one agent ID in the context, got [${ids.join(' ')}]`);
  }
  return valid(() => checkName('agent ID', ids[0] as string));
}

function readIdentifiers(metadata: Metadata, { identifierLimits }: AgentServiceOptions): AgentIdentifiers {
  const queries = metadata.get('agentidentifiers');
  if (queries.length > 1) {
    const shown = queries.join(' ');
    throw new StatusError(
      'InvalidArgument',
      `expected at most one set of agent identifiers in the context, got [${shown}]`,
    );
  }
  return valid(() => parseIdentifiers(queries[0] ?? '', identifierLimits));
}

function valid<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof AgentLimitError) throw error;
    throw new StatusError('InvalidArgument', (error as Error).message);
  }
}

async function authenticate(call: ServerCall, options: AgentServiceOptions): Promise<void> {
  if (!options.authenticate) return;
  const { metadata, peer, signal } = call;
  const value = metadata.first('authorization');
  if (value === undefined) {
    throw new StatusError('Unauthenticated', 'Authentication context was not found in metadata');
  }
  if (!value.startsWith(SCHEME)) {
    throw new StatusError('Unauthenticated', `received token does not have "${SCHEME}" prefix`);
  }
  try {
    const source = sourceOf(peer.socket.remoteAddress ?? '');
    await options.authenticate(value.slice(SCHEME.length), { source, signal });
  } catch (error) {
    if (error instanceof AgentLimitError) throw error;
    const why = (error as Error).message;
    throw new StatusError('Unauthenticated', `Failed to validate authentication token, err:${why}`);
  }
}
