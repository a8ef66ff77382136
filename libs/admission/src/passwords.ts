import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { type Problem, type ReadFile, readTenantFile } from './tenant-file.ts';
import type { TenantFile } from './tenant-schema.ts';

/**
 * A token that `isthmus tenants token` makes: an id, which finds its entry, and 32 random bytes in base64url. Nobody guesses 256 bits, so one
 * SHA-256 hides them as well as scrypt would, and verifying a stranger's token costs a microsecond instead of 50 ms. Tokens of other
 * forms are not accepted: what people choose can be guessed from such a hash.
 */
const TOKEN = /^isthmus_([0-9a-f]{16})_[A-Za-z0-9_-]{43}$/;

/** Makes a token. It is shown once; the file gets its id, which is the salt, and the SHA-256 of the whole token. */
export function newPassword(): { readonly token: string; readonly sha256: string } {
  const id = randomBytes(8).toString('hex');
  const token = `isthmus_${id}_${randomBytes(32).toString('base64url')}`;
  return { token, sha256: hashOf(id, token) };
}

/** Returns what a tenant's file holds of a token: its salted hash. Undefined for a text of another form. */
export function passwordHash(token: string): string | undefined {
  const id = passwordId(token);
  return id && hashOf(id, token);
}

/** Returns the id of a token of this form; undefined for any other text. */
export function passwordId(token: string): string | undefined {
  return TOKEN.exec(token)?.[1];
}

/** Whether a text is such a token, or was before a part of it was lost. */
export function beginsAsPassword(token: string): boolean {
  return token.startsWith('isthmus_');
}

/** An entry of `passwords`. */
export interface Password {
  /** The caller's. */
  readonly name: string;
  readonly sha256: string;
  /** Where it stands: `callers[1].passwords[0]`. */
  readonly at: string;
}

/** The entries of a tenant's file, by the ids of their tokens. */
export type Passwords = ReadonlyMap<string, Password>;

export function passwordsOf({ callers = [] }: Pick<TenantFile, 'callers'>): Passwords {
  const found = callers.flatMap(({ passwords = [] }, way) =>
    passwords.map((entry, index): [string, Password] => [
      entry.sha256.slice(0, entry.sha256.indexOf(':')),
      { ...entry, at: `callers[${way}].passwords[${index}]` },
    ]),
  );
  return new Map(found);
}

/** Whether an entry is of a token with this id, compared in constant time. */
export function isEntryOf({ sha256 }: Password, id: string, token: string): boolean {
  return timingSafeEqual(Buffer.from(hashOf(id, token)), Buffer.from(sha256));
}

function hashOf(id: string, token: string): string {
  return `${id}:${createHash('sha256').update(token).digest('base64url')}`;
}

/** Without bounds: what the flags of a server without tenants say. */
const UNLIMITED = { tunnels: Number.POSITIVE_INFINITY };

/**
 * Reads --caller-token-file, the lines that `isthmus tenants token` prints, as what a file of tenant `default` would list. A file without
 * any is a file of no tokens: then all are removed.
 * @param others the other ways in of that tenant's callers
 */
export function readCallerTokens(source: string, others: NonNullable<TenantFile['callers']>): ReadFile {
  const listed = /^[ \t]*[^#\s]/m.test(source);
  const read = readTenantFile(listed ? `callers:\n${source}\ntenant: default` : 'tenant: default');
  const below = (problem: Problem) => ({ ...problem, line: Math.max(1, problem.line - 1) });
  if ('problems' in read) return { problems: read.problems.map(below) };
  const { tenant, callers = [], ...more } = read.file;
  const problem = (at: string, message: string) => below(read.problem(at, message));
  const strange = callers.findIndex(({ passwords }) => !passwords);
  const at = strange < 0 ? Object.keys(more)[0] : `callers[${strange}]`;
  if (at !== undefined) return { problems: [problem(at, 'expected only lines that isthmus tenants token prints')] };
  const ways = [...callers, { passwords: [] }, ...others];
  return { file: { tenant, callers: ways, limits: UNLIMITED }, problem };
}
