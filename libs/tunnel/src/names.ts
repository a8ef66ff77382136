import { isIP, isPrintable } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';

/** Returns whether a peer may use this name. */
export function isName(name: string): boolean {
  return name.length <= TUNNEL.nameChars && isPrintable(name);
}

/**
 * Returns the name if a peer may use it.
 * @param what the kind of name, for the error: `agent id`
 * @throws Error whose message does not contain the name
 */
export function checkName(what: string, name: string): string {
  if (isName(name)) return name;
  const { length } = name;
  if (length > TUNNEL.nameChars)
    throw new Error(`${what} of ${length} characters: at most ${TUNNEL.nameChars} are taken`);
  throw new Error(`${what} with control characters: only what can be printed is taken`);
}

/**
 * The agent's name in records of a tunnel that a gateway opened itself. Its session and hub are empty, as no agent's are. No agent has
 * this name.
 */
export const DIRECT = 'direct';

/**
 * Returns the id if an agent may have it.
 * @param what as for checkName, which it does too
 * @throws Error
 */
export function checkAgentId(what: string, id: string): string {
  if (id !== DIRECT) return checkName(what, id);
  throw new Error(`${what} "${DIRECT}" is taken: it stands for what gateways dial themselves; set another --agent-id`);
}

/*
 * The DNS names (subjectAltName) by which a certificate proves a role between the processes of a plane. Addresses prove nothing: a
 * pod's address is not known in advance, and anyone who can write to the registry can put any address there.
 */

/** Proves a hub to gateways. Agents accept it too, besides the name of the configured server. */
export const HUB_SERVER_NAME = 'isthmus-hub';

/** Proves a gateway to hubs. */
export const GATEWAY_NAME = 'isthmus-gateway';

/** What an admin port's certificate may have instead of its address, because pods' addresses change. */
export const ADMIN_SERVER_NAME = 'isthmus-admin';

/** Who a peer is, from its verified credential. What it says of itself is a claim, and is no part of this. */
export interface Principal<Role extends string = 'agent' | 'caller'> {
  readonly tenant: string;
  readonly role: Role;
  /** Within the tenant: an agent's id, the name of a caller or operator. */
  readonly name: string;
  /** What verified it, for people to find: `acme.yaml: agents[0].certificates`. */
  readonly rule: string;
  /** Several agents hold the credential, such as a service account's token: it says nothing of an agent's id. */
  readonly shared?: boolean;
}

/** A principal at any port, the admin port included. */
export type AnyPrincipal = Principal<'agent' | 'caller' | 'operator'>;

/** Names a principal in logs and audit records: `acme/agent/edge-1`. */
export function principalText({ tenant, role, name }: Pick<AnyPrincipal, 'tenant' | 'role' | 'name'>): string {
  return `${tenant}/${role}/${name}`;
}

interface RefusedWhat {
  readonly rule?: string | undefined;
  readonly principal?: AnyPrincipal | undefined;
  readonly destination?: string | undefined;
  readonly tenant?: string | undefined;
  readonly undecided?: boolean;
  readonly challenge?: boolean;
  readonly cause?: Error;
}

/** All that a peer is told that has proven nothing. Anything more would tell which tenants there are, or where their rules stand. */
const TOLD_STRANGERS = 'not authorised: the credential is missing or not accepted; see the log of this server';
const TOLD_UNDECIDED = 'the credential cannot be verified now; see the log of this server';

/**
 * A peer that did not prove who it is, or that claims or asks for more than its principal may. Its message is for logs and audit:
 * `toldOf` says what the peer may read.
 */
export class NotAuthorised extends Error {
  override readonly name = 'NotAuthorised';
  /** The file and rule that refuse it: `acme.yaml: claims.cidr`. Unset if no tenant's file applies to it. */
  readonly rule: string | undefined;
  /** Who it is. Unset if it has proven nothing. */
  readonly principal: AnyPrincipal | undefined;
  /** `host:port` that it wanted to dial. Unset if it was refused before it dialled. */
  readonly destination: string | undefined;
  /** Of its principal; of a dial over a link, which tells no principal, the dial's. */
  readonly tenant: string | undefined;
  /** Whether nobody could decide now, because what decides did not answer. The same credential may be good the next time. */
  readonly undecided: boolean;
  /** Whether another token would prove it: HTTP asks for one (407). */
  readonly challenge: boolean;

  constructor(message: string, { cause, ...what }: RefusedWhat = {}) {
    super(message, cause && { cause });
    const { rule, principal, destination, tenant = principal?.tenant, undecided = false, challenge = false } = what;
    this.rule = rule;
    this.principal = principal;
    this.destination = destination;
    this.tenant = tenant;
    this.undecided = undecided;
    this.challenge = challenge;
  }

  /** The same refusal, of a dial. */
  dialling(destination: string): NotAuthorised {
    const { rule, principal, undecided, challenge } = this;
    return new NotAuthorised(this.message, { rule, principal, destination, undecided, challenge });
  }
}

/** What the peer of a refused connection or request may read of why. */
export function toldOf(error: Error): string {
  if (!(error instanceof NotAuthorised) || error.principal) return error.message;
  return error.undecided ? TOLD_UNDECIDED : TOLD_STRANGERS;
}

/** A peer turned away from the certificate that this process showed, as one does that does not trust its authority. */
export class Distrusted extends Error {
  override readonly name = 'Distrusted';
}

/** Returns the NotAuthorised that an error is, or that caused it. */
export function notAuthorisedIn(error: unknown): NotAuthorised | undefined {
  let each = error;
  for (let step = 0; step < TUNNEL.causes && each instanceof Error; step++) {
    if (each instanceof NotAuthorised) return each;
    each = each.cause;
  }
  return undefined;
}

/**
 * Error texts of libraries that name their own options or source files, and what they mean. Operators have not read the libraries'
 * manuals.
 */
const PHRASES: readonly (readonly [said: RegExp, means: string])[] = [
  // ioredis
  [/Reached the max retries per request limit.*/s, 'the connection broke before an answer came'],
  [/Stream isn't writeable and enableOfflineQueue options is false\.?/, 'there is no connection'],
  [/^Connection is closed\.?$/, 'the connection is closed'],
  [/^Command timed out$/, 'no answer in time'],
  // grpc-js puts the last error in the middle of a list of what it tried.
  [/^.*Last error: (?:Error: )?/s, ''],
  [/\.? ?Resolution note:.*$/s, ''],
  [/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)/, ''],
  [/^No connection established$/, 'no connection'],
  [/Received RST_STREAM with code (\d+)/, 'the stream was reset, HTTP/2 code $1'],
  // OpenSSL: `C0F7:error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../deps/openssl/ssl/ssl3_record.c:355:`
  [
    /(?:write EPROTO )?(?:[\dA-F]{1,32}:)?error:[\dA-F]{8}:[^:]*:[^:]*:([^:]+)(?::[^\s:]+\.c:\d+:[^\n]*)?\n?/gs,
    'TLS: $1',
  ],
  [/TLS: wrong version number|TLS: packet length too long/, 'the other side speaks no TLS'],
  [/TLS: http request/, 'plain HTTP came where TLS is spoken'],
  [/TLS: no start line/, 'it holds no PEM text'],
  [/TLS: key values mismatch/, 'the key is not that of the certificate'],
  // Node and undici
  [
    /^Client network socket disconnected before secure TLS connection was established$/,
    'it ended amid the TLS handshake',
  ],
  [/^socket hang up$/, 'it ended the connection'],
];

/** Returns an error's text for an operator. For an error that only wraps others, returns the text of the first of them. */
export function inWords(error: unknown): string {
  if (!(error instanceof Error)) return phrased(String(error));
  const [first] = error instanceof AggregateError ? error.errors : [];
  if (first !== undefined && error.message === '') return inWords(first);
  // undici's own message says nothing; its cause does.
  if (error.message === 'fetch failed' && error.cause !== undefined) return inWords(error.cause);
  return phrased(error.message) || error.name;
}

function phrased(text: string): string {
  return PHRASES.reduce(
    (words, [said, means]) => words.replace(said, means),
    text.slice(0, TUNNEL.errorTextChars),
  ).trim();
}

/** Words that follow "bearer" or "basic" in a sentence. No credential is one of them. */
const WORDS = [
  ...['access', 'and', 'are', 'auth', 'authentication', 'authorization', 'credential', 'credentials', 'expired'],
  ...['for', 'from', 'has', 'header', 'in', 'invalid', 'is', 'missing', 'must', 'not', 'of', 'or', 'rejected'],
  ...['required', 'scheme', 'that', 'to', 'token', 'tokens', 'was', 'with', 'without'],
].join('|');

/**
 * Matches a credential of HTTP authentication (RFC 9110 section 11.4) in a text. The first group is the scheme. "Invalid bearer token"
 * has no match. There is no word boundary before the scheme, because in a line of JSON it may follow a backslash and an n.
 */
export const HTTP_CREDENTIAL = new RegExp(
  `(Bearer|Basic)\\s+(?!(?:${WORDS})(?:[.,:;!?)]*(?:[\\s"'\\\\]|$)|[,:;!?)]))[\\w.~+/=-]+`,
  'gi',
);

/** What an agent says it can reach (upstream's agent identifiers). */
export interface AgentIdentifiers {
  readonly ipv4: readonly string[];
  readonly ipv6: readonly string[];
  readonly host: readonly string[];
  readonly cidr: readonly string[];
  readonly defaultRoute: boolean;
}

export function identifierCount({ ipv4, ipv6, host, cidr, defaultRoute }: AgentIdentifiers): number {
  return [ipv4, ipv6, host, cidr].reduce((sum, { length }) => sum + length, defaultRoute ? 1 : 0);
}

/** Whether Go's net.ParseCIDR takes a text: no zones, no octal numbers, no parts left out. */
export function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([\da-fA-F.:]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(bits) <= (family === 4 ? 32 : 128);
}
