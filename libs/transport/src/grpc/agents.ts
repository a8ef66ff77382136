import { addressOf, sourceOf } from '@isthmus/runtime';
import { type AgentIdentifiers, checkAgentId, NotAuthorised, type PlaneEvents, toldOf } from '@isthmus/tunnel';
import { type Metadata, type PacketChannel, type ServerCall, StatusError, type StatusName } from '@isthmus/wire';
import { AgentLimitError, type IdentifierLimits, parseIdentifiers, type Reach, refusedWhere } from '../identifiers.ts';
import type { ConnectionPeer } from '../listen.ts';
import { CONNECT_METHOD } from '../packets/mux.ts';
import type { GrpcService } from './server.ts';

const SCHEME = 'Bearer ';

/** An agent that asks for a session. */
interface AskingAgent {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly peer: ConnectionPeer;
  /** Without `Bearer`. */
  readonly token: string | undefined;
  /** Aborts when the agent has gone. */
  readonly signal: AbortSignal;
  /** Lets its token be checked. Rejects in ANP's words if it shows none, or none that is valid. */
  readonly authenticate: (check: Authenticate) => Promise<void>;
}

/** An accepted agent. Nothing is read from its channel until it is started. */
export interface PacketAgent {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly peer: ConnectionPeer;
  readonly channel: PacketChannel;
}

/** The peer that presents a token. */
interface TokenBearer {
  /** Its source, as limits count it. */
  readonly source: string;
  /** Aborts when the peer has gone. */
  readonly signal: AbortSignal;
}

/** Rejects if the token is not valid, or could not be checked in time. */
export type Authenticate = (token: string, bearer: TokenBearer) => Promise<void>;

/** @typeParam A what `admit` found */
export interface AgentServiceOptions<A> {
  readonly serverId: string;
  readonly serverCount: () => number;
  readonly events: PlaneEvents;
  readonly identifierLimits?: IdentifierLimits;
  /** Decides whether it gets one. Rejects with NotAuthorised or AgentLimitError. */
  readonly admit: (agent: AskingAgent) => Promise<A>;
  /** Throws AgentLimitError if others took the room meanwhile: several agents may share one review of a token. */
  readonly checkRoom: (found: A, agentId: string) => void;
  readonly onAgent: (agent: PacketAgent, admitted: A) => void;
}

/** The Go agents' edge. Each agent has one stream, which carries all its tunnels. */
export function agentService<A extends { readonly tenant: string }>(options: AgentServiceOptions<A>): GrpcService {
  return { path: CONNECT_METHOD, serve: (call, proven) => call.stream.guarded(() => admit(call, proven, options))() };
}

async function admit<A extends { readonly tenant: string }>(
  call: ServerCall<ConnectionPeer>,
  proven: (tenant: string) => void,
  options: AgentServiceOptions<A>,
): Promise<void> {
  const { serverId, serverCount, events, checkRoom, onAgent } = options;
  const { metadata, peer } = call;
  try {
    const agentId = readAgentId(metadata);
    const { identifiers, mistake } = readReach(metadata, options.identifierLimits);
    const found = await options.admit({
      ...{ agentId, identifiers, peer, token: tokenOf(call), signal: call.signal },
      authenticate: (check) => authenticate(call, check),
    });
    if (call.over) return;
    checkRoom(found, agentId);
    proven(found.tenant);
    // Agents wait for these two before anything else.
    call.respond([
      ['serverid', serverId],
      ['servercount', String(serverCount())],
    ]);
    onAgent({ agentId, identifiers, peer, channel: call }, found);
    if (mistake) events.emit('refused', 'agents', `agent ${agentId}`, mistake);
  } catch (error) {
    const refusal = error as Error;
    call.fail(statusOf(refusal));
    // What the admission has judged it counts itself.
    if (refusal instanceof StatusError) peer.refused?.(refusal);
    events.emit('refused', refusedWhere(refusal, 'grpc agents'), peer.remote, refusal);
  }
}

function statusOf(error: Error): StatusError {
  if (error instanceof StatusError) return error;
  return new StatusError(statusNameOf(error), toldOf(error));
}

function statusNameOf(error: Error): StatusName {
  if (error instanceof AgentLimitError) return 'ResourceExhausted';
  if (!(error instanceof NotAuthorised)) return 'Internal';
  return error.undecided ? 'Unavailable' : 'PermissionDenied';
}

function tokenOf({ metadata }: ServerCall): string | undefined {
  const value = metadata.first('authorization');
  return value?.startsWith(SCHEME) ? value.slice(SCHEME.length) : undefined;
}

function readAgentId(metadata: Metadata): string {
  const ids = metadata.get('agentid');
  if (ids.length !== 1) {
    throw new StatusError('InvalidArgument', `expected one agent ID in the context, got [${ids.join(' ')}]`);
  }
  return valid(() => checkAgentId('agent ID', ids[0] as string));
}

function readReach(metadata: Metadata, limits: IdentifierLimits | undefined): Reach {
  const queries = metadata.get('agentidentifiers');
  if (queries.length > 1) {
    const shown = queries.join(' ');
    throw new StatusError(
      'InvalidArgument',
      `expected at most one set of agent identifiers in the context, got [${shown}]`,
    );
  }
  return valid(() => parseIdentifiers(queries[0] ?? '', limits));
}

function valid<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof AgentLimitError) throw error;
    throw new StatusError('InvalidArgument', (error as Error).message);
  }
}

async function authenticate(
  { metadata, peer, signal }: ServerCall<ConnectionPeer>,
  check: Authenticate,
): Promise<void> {
  const value = metadata.first('authorization');
  if (value === undefined) {
    throw new StatusError('Unauthenticated', 'Authentication context was not found in metadata');
  }
  if (!value.startsWith(SCHEME)) {
    throw new StatusError('Unauthenticated', `received token does not have "${SCHEME}" prefix`);
  }
  try {
    const source = sourceOf(addressOf(peer.socket) ?? '');
    await check(value.slice(SCHEME.length), { source, signal });
  } catch (error) {
    if (error instanceof AgentLimitError) throw error;
    const why = (error as Error).message;
    throw new StatusError('Unauthenticated', `Failed to validate authentication token, err:${why}`);
  }
}
