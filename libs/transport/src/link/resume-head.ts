import { type AttachAnswer, type AttachClaim, DialError, type ResumeGrant, type ResumeOffer } from '@isthmus/tunnel';
import type { Head } from '@isthmus/wire';

/** The fields of a head with which a tunnel can outlive its hub (docs/RESUME.md). Hubs pass both on. */
const RESUME_FIELD = 'isthmus-resume';
const ATTACH_FIELD = 'isthmus-attach';

/** Positions are counts of bytes. They fit into a mark: see marks.ts. */
const POSITION = /^\d{1,15}$/;
const SECRET = /^[0-9a-f]{32}$/;

/**
 * The field of a dial. `direct`: the gateway is at the other side of this link. A hub that passes an offer on leaves it out. Later versions
 * may append more.
 */
const OFFER = /^\?1(;direct)?(?:;gateway=([0-9a-f]{16}))?(?:;|$)/;

/** The field of an answer to a dial. Later versions may add more. */
const GRANT = /^instance=([0-9a-f]{16});secret=([0-9a-f]{32})(?:;|$)/;

/** A head that is being built. */
type Fields = Record<string, string | number>;

export function addOffer(head: Fields, { direct, gateway }: ResumeOffer): void {
  head[RESUME_FIELD] = `?1${direct ? ';direct' : ''}${gateway === undefined ? '' : `;gateway=${gateway}`}`;
}

export function readOffer(head: Head): ResumeOffer | undefined {
  const [offer, direct, gateway] = OFFER.exec(head[RESUME_FIELD] ?? '') ?? [];
  return offer === undefined ? undefined : { direct: direct !== undefined, gateway };
}

export function addGrant(head: Fields, { instance, secret }: ResumeGrant): void {
  head[RESUME_FIELD] = `instance=${instance};secret=${secret}`;
}

/** Ignores a field that cannot be read. The tunnel is then not resumed. */
export function readGrant(head: Head): ResumeGrant | undefined {
  const [, instance, secret] = GRANT.exec(head[RESUME_FIELD] ?? '') ?? [];
  return instance && secret ? { instance, secret } : undefined;
}

/** @param direct whether the gateway is at the other side of this link */
export function addClaim(head: Fields, { secret, number, received, taken, final }: AttachClaim, direct: boolean): void {
  head[ATTACH_FIELD] = encode({ secret, number, received, taken, final, ...(direct && { direct: 1 }) });
}

/** @throws DialError http_request_error for an attach that cannot be read */
export function readClaim(head: Head): { readonly claim: AttachClaim; readonly direct: boolean } {
  const value = head[ATTACH_FIELD] ?? '';
  const values = decode(value);
  const secret = values.get('secret') ?? '';
  const [number, received, taken] = positions(values, ['number', 'received', 'taken']);
  if (!SECRET.test(secret) || number === undefined || received === undefined || taken === undefined)
    throw new DialError('http_request_error', `not an attach: ${JSON.stringify(value.slice(0, 100))}`);
  return { claim: { secret, number, received, taken, ...finalOf(values) }, direct: values.get('direct') === '1' };
}

export function addAttached(head: Fields, { from, received, taken, final }: AttachAnswer): void {
  head[ATTACH_FIELD] = encode({ from, received, taken, final });
}

/** @throws DialError connection_terminated, retryable, for an answer that does not say where to go on */
export function readAttached(head: Head): AttachAnswer {
  const values = decode(head[ATTACH_FIELD] ?? '');
  const [from, received, taken] = positions(values, ['from', 'received', 'taken']);
  if (from === undefined || received === undefined || taken === undefined) {
    const text = 'the answer to the attach does not say where to go on';
    throw new DialError('connection_terminated', text, { retryable: true });
  }
  return { from, received, taken, ...finalOf(values) };
}

function encode(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${value}`).join(';');
}

function decode(text: string): ReadonlyMap<string, string> {
  return new Map(text.split(';').map((part) => part.split('=', 2) as [string, string]));
}

function positions(values: ReadonlyMap<string, string>, names: readonly string[]): (number | undefined)[] {
  return names.map((name) => {
    const text = values.get(name) ?? '';
    return POSITION.test(text) ? Number(text) : undefined;
  });
}

function finalOf(values: ReadonlyMap<string, string>): { readonly final?: number } {
  const [final] = positions(values, ['final']);
  return final === undefined ? {} : { final };
}
