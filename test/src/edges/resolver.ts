import dns, { type LookupAddress } from 'node:dns';
import { readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

/**
 * Loaded into a program before it starts (`--import`): resolves names below `.rebind.example` by a file, JSON of lists of addresses. Each
 * question takes the first list away. Other names are resolved as usual.
 */
const file = process.env.ISTHMUS_TEST_ANSWERS ?? '';
const { lookup } = dns;

function answer(): LookupAddress[] {
  const [next = [], ...others] = JSON.parse(readFileSync(file, 'utf8')) as string[][];
  writeFileSync(file, JSON.stringify(others));
  return next.map((address) => ({ address, family: 4 }));
}

type Callback = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

function answering(name: string, options: { readonly all?: boolean }, callback: Callback): void {
  if (!name.endsWith('.rebind.example')) {
    lookup(name, options as { all: true }, callback);
    return;
  }
  const found = answer();
  const [first] = found;
  setImmediate(() => (options.all ? callback(null, found) : callback(null, first?.address ?? '', first?.family)));
}

dns.lookup = answering as unknown as typeof lookup;
syncBuiltinESMExports();
