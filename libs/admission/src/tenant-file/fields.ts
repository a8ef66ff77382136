import { isLoopback } from '@isthmus/runtime';
import { isName } from '@isthmus/tunnel';
import * as v from 'valibot';
import { HostPattern, Prefix } from '../patterns.ts';
import { bytesOf } from './bytes.ts';

/** The longest list in a tenant's file. */
const MOST_ENTRIES = 1000;

/** The longest text in a tenant's file, in characters. */
const LONGEST_TEXT = 4096;

export const text = v.pipe(
  v.string('expected a text'),
  v.nonEmpty('may not be empty'),
  v.maxLength(LONGEST_TEXT, `may have ${LONGEST_TEXT} characters`),
);

/** A name that others show and log: of a rule, or of a caller. */
export const name = v.pipe(text, v.check(isName, 'expected at most 264 characters, and only what can be printed'));

/** A path. One that is not absolute is relative to the tenant's file. */
export const path = v.pipe(text, v.description('A file. A relative path starts from the directory of this file.'));

/** A tenant's name, as it stands in metrics, logs and SPIFFE IDs. */
export const tenantName = v.pipe(
  text,
  v.regex(
    /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/,
    'expected up to 63 lower-case letters, digits, dots and hyphens, with a letter or digit first and last',
  ),
);

export const port = v.pipe(
  v.number('expected a port number'),
  v.integer('expected a port number'),
  v.minValue(1, 'expected a port from 1 to 65535'),
  v.maxValue(65_535, 'expected a port from 1 to 65535'),
);

export const count = v.pipe(
  v.number('expected a whole number'),
  v.integer('expected a whole number'),
  v.minValue(1, 'expected 1 or more'),
  v.maxValue(1_000_000_000, 'expected 1,000,000,000 or less'),
);

export function list<T extends v.GenericSchema>(item: T) {
  return v.pipe(
    v.array(item, 'expected a list'),
    v.minLength(1, 'expected at least one entry'),
    v.maxLength(MOST_ENTRIES, `expected ${MOST_ENTRIES} entries or fewer`),
  );
}

/** A number of bytes: `200MB`, `16MiB`, `65536`. */
export const bytes = v.pipe(
  v.union([v.string(), v.number()], 'expected a number of bytes such as 200MB or 16MiB'),
  v.check((value) => bytesOf(value) >= 1, 'expected a number of bytes such as 200MB or 16MiB'),
);

/** An https URL, or an http URL on this machine: an attacker who can change what is fetched chooses whom we trust. */
export const url = v.pipe(
  text,
  v.check(isTrusted, 'expected a URL such as https://issuer.example (http only to a loopback address)'),
);

function isTrusted(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname } = new URL(value);
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

export const cidr = readable('A prefix such as 10.0.0.0/8, or an address.', (value) => new Prefix(value));

export const hostPattern = readable(
  'A DNS name, or a pattern such as *.example.com.',
  (value) => new HostPattern(value),
);

/** A text that a constructor reads; what it throws becomes the problem. */
function readable(description: string, read: (value: string) => unknown) {
  return v.pipe(
    text,
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      try {
        read(dataset.value);
      } catch (error) {
        addIssue({ message: (error as Error).message });
      }
    }),
    v.description(description),
  );
}
