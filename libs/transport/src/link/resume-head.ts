import type { Head } from '@isthmus/http2';
import {
  type AttachAnswer,
  type AttachClaim,
  DialError,
  type ResumeAnswer,
  type ResumeGrant,
  type ResumeRequest,
} from '@isthmus/tunnel';

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

/** A request with `carry` comes from an end of the tunnel, not from a hub. */
export function addResumeRequest(head: Fields, { attach, carry, gateway }: ResumeRequest): void {
  if (attach) {
    const { secret, number, received, taken, final } = attach;
    head[ATTACH_FIELD] = encode({ secret, number, received, taken, final, ...(carry && { direct: 1 }) });
    return;
  }
  head[RESUME_FIELD] = `?1${carry ? ';direct' : ''}${gateway === undefined ? '' : `;gateway=${gateway}`}`;
}

/** @throws DialError http_request_error for an attach that cannot be read */
export function readResumeRequest(head: Head): ResumeRequest | undefined {
  const value = head[ATTACH_FIELD];
  if (value === undefined) return readOffer(head[RESUME_FIELD]);
  const attach = readAttach(value);
  if (attach) return { attach, ...(decode(value).get('direct') === '1' && { direct: true }) };
  throw new DialError('http_request_error', `not an attach: ${JSON.stringify(value.slice(0, 100))}`);
}

function readOffer(value = ''): ResumeRequest | undefined {
  const [offer, direct, gateway] = OFFER.exec(value) ?? [];
  return offer === undefined ? undefined : { direct: direct !== undefined, gateway };
}

export function addResumeAnswer(head: Fields, { grant, attached }: ResumeAnswer): void {
  if (grant) head[RESUME_FIELD] = `instance=${grant.instance};secret=${grant.secret}`;
  if (attached) head[ATTACH_FIELD] = encode({ ...attached });
}

/** Ignores a field that cannot be read. The tunnel is then not resumed. */
export function readResumeAnswer(head: Head): ResumeAnswer | undefined {
  const grant = readGrant(head[RESUME_FIELD]);
  const attached = readAttached(head[ATTACH_FIELD]);
  return grant || attached ? { ...(grant && { grant }), ...(attached && { attached }) } : undefined;
}

function encode(values: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${value}`).join(';');
}

function decode(text: string): ReadonlyMap<string, string> {
  return new Map(text.split(';').map((part) => part.split('=', 2) as [string, string]));
}

function readAttach(text: string): AttachClaim | undefined {
  const values = decode(text);
  const secret = values.get('secret') ?? '';
  const [number, received, taken] = positions(values, ['number', 'received', 'taken']);
  if (!SECRET.test(secret) || number === undefined || received === undefined || taken === undefined) return undefined;
  return { secret, number, received, taken, ...finalOf(values) };
}

function readAttached(text: string | undefined): AttachAnswer | undefined {
  if (text === undefined) return undefined;
  const values = decode(text);
  const [from, received, taken] = positions(values, ['from', 'received', 'taken']);
  if (from === undefined || received === undefined || taken === undefined) return undefined;
  return { from, received, taken, ...finalOf(values) };
}

function readGrant(text = ''): ResumeGrant | undefined {
  const [, instance, secret] = GRANT.exec(text) ?? [];
  return instance && secret ? { instance, secret } : undefined;
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
