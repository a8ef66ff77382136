import { addressOf, sourceOf } from '@isthmus/runtime';
import {
  type AgentIdentifiers,
  asDialError,
  checkAgentId,
  type Dial,
  DialError,
  type DialErrorCode,
  formatDestination,
  NotAuthorised,
  notAuthorisedIn,
  type PlaneEvents,
  toldOf,
} from '@isthmus/tunnel';
import { type Metadata, type PacketChannel, type ServerCall, StatusError, type StatusName } from '@isthmus/wire';
import type { CallerEdgeOptions } from '../connect.ts';
import { TRANSPORT } from '../defaults.ts';
import { AgentLimitError, type IdentifierLimits, parseIdentifiers, type Reach, refusedWhere } from '../identifiers.ts';
import { CONNECT_METHOD, PROXY_METHOD } from '../packets/channel.ts';
import { PacketServer } from '../packets/serve.ts';
import { credentialIn, type ProxyCredential } from '../proxy-authorization.ts';
import { type CallerIdentity, type ConnectionPeer, denied, type IdentifyByToken } from '../tls/certificate.ts';

/** A method of a service that streams packets both ways. */
export interface GrpcService {
  /** `/Service/Method`. */
  readonly path: string;
  /** @param proven reports that the peer has proven who it is, so that the limits of unproven peers no longer apply */
  readonly serve: (call: ServerCall<ConnectionPeer>, proven: () => void) => void;
}

export interface ProxyServiceOptions extends CallerEdgeOptions {
  /**
   * Counts a stream that has not dialled yet among its tenant's pending dials. Returns what to call when it dials or ends.
   * @throws DialError if the tenant has no room for it
   */
  readonly awaitDial?: ((tenant: string) => () => void) | undefined;
}

/** The callers' gRPC edge, as API servers use it: one stream a dial. What `authorization` shows is judged as `Proxy-Authorization` of a CONNECT. */
export function proxyService(options: ProxyServiceOptions): GrpcService {
  const { identifyCaller, identifyByToken } = options;
  return {
    path: PROXY_METHOD,
    serve(call, proven) {
      const shown = identifyByToken ? call.metadata.get('authorization') : [];
      if (!identifyByToken || shown.length === 0) {
        serve(
          call,
          proven,
          options,
          judged(() => identifyCaller(call.peer)),
        );
        return;
      }
      call.guarded(async () => serve(call, proven, options, await judgedBy(identifyByToken, call, shown)))();
    },
  };
}

/** Who calls, why it may not, or why nobody can say so. */
type Judged = CallerIdentity | NotAuthorised | DialError;

function judged(identify: () => Judged): Judged {
  try {
    return identify();
  } catch (error) {
    if (error instanceof DialError) return error;
    throw error;
  }
}

async function judgedBy(
  identifyByToken: IdentifyByToken,
  { peer, signal }: ServerCall<ConnectionPeer>,
  shown: readonly string[],
): Promise<Judged> {
  try {
    return await identifyByToken(peer, credentialIn(shown, peer.socket) as ProxyCredential, signal);
  } catch (error) {
    return error instanceof NotAuthorised ? error : asDialError(error);
  }
}

function serve(call: ServerCall<ConnectionPeer>, proven: () => void, options: ProxyServiceOptions, who: Judged): void {
  const { events, timeout, awaitDial = () => () => {} } = options;
  const { peer } = call;
  const { remote } = peer;
  const refused = (why: Error) => events.emit('refused', 'callers', remote, why);
  const failed = (why: DialError) => {
    call.fail(new StatusError(STATUS_OF_REFUSAL[why.code] ?? 'ResourceExhausted', why.message));
    refused(notAuthorisedIn(why) ?? why);
  };
  // A wrong token may also be answered with a limit.
  const wrong = notAuthorisedIn(who);
  if (wrong) {
    peer.refused?.(wrong);
    // A caller that did not wait for the verdict has guessed too.
    if (call.over) refused(wrong);
  }
  if (call.over) return;
  if (who instanceof DialError) {
    if (!wrong) peer.refused?.(who);
    failed(who);
    return;
  }
  let dialled = () => {};
  if (!(who instanceof NotAuthorised)) {
    proven();
    try {
      dialled = awaitDial(who.tenant);
    } catch (error) {
      if (!(error instanceof DialError)) throw error;
      failed(error);
      return;
    }
  }
  /** Why it may not dial, until it was told so. */
  let untold = who instanceof NotAuthorised ? who : undefined;
  const [dialler, dial] =
    who instanceof NotAuthorised
      ? [{ tenant: '' }, refusing(who, remote, events)]
      : [{ tenant: who.tenant, caller: { via: 'grpc' as const, ...who.caller } }, options.dial];
  const traceparent = call.metadata.first('traceparent');
  events.emit('caller:open', 'grpc');
  const refuse = () => {
    const error = new Error(`no dial within ${TRANSPORT.firstDialMs / 1000} s`);
    served.destroy(error);
    if (!untold) refused(error);
  };
  const late = setTimeout(call.guarded(refuse), TRANSPORT.firstDialMs).unref();
  const waitsNoMore = () => {
    clearTimeout(late);
    dialled();
    dialled = () => {};
  };
  const served = new PacketServer(call, {
    role: 'gateway',
    dial(request) {
      waitsNoMore();
      untold = undefined;
      call.account(request.tenant);
      return dial(request);
    },
    ...dialler,
    events,
    dialMs: timeout,
    ...(traceparent !== undefined && { traceparent }),
  });
  const gone = () => {
    waitsNoMore();
    if (untold) refused(untold);
    events.emit('caller:close', 'grpc');
  };
  void served.closed.then(call.guarded(gone));
}

/** Of a call whose caller cannot be known. */
const STATUS_OF_REFUSAL: { readonly [Code in DialErrorCode]?: StatusName } = {
  http_request_error: 'InvalidArgument',
  http_request_denied: 'Unauthenticated',
};

/** The caller reads why, and its other streams go on. */
function refusing(why: NotAuthorised, remote: string, events: PlaneEvents): Dial {
  return ({ destination }) => {
    events.emit('refused', 'callers', remote, why.dialling(formatDestination(destination)));
    return Promise.reject(denied(why));
  };
}

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
export function agentService<A>(options: AgentServiceOptions<A>): GrpcService {
  return { path: CONNECT_METHOD, serve: (call, proven) => call.guarded(() => admit(call, proven, options))() };
}

async function admit<A>(
  call: ServerCall<ConnectionPeer>,
  proven: () => void,
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
    proven();
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
