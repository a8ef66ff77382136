import dns from 'node:dns';
import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Loaded into a program before it starts (`--import`): resolves names below `.rebind.example` by a file, JSON of lists of addresses. Each
 * question takes the first list away. Other names are resolved as usual.
 */
const file = process.env.ISTHMUS_TEST_ANSWERS ?? '';
const { resolve4, resolve6 } = dns.Resolver.prototype;

type Callback = (error: NodeJS.ErrnoException | null, addresses: string[]) => void;
type Resolve = (this: dns.Resolver, name: string, callback: Callback) => void;

function answer(): string[] {
  const [next = [], ...others] = JSON.parse(readFileSync(file, 'utf8')) as string[][];
  writeFileSync(file, JSON.stringify(others));
  return next;
}

function answering(addresses: () => string[], otherwise: Resolve): Resolve {
  return function (this: dns.Resolver, name, callback) {
    if (name.endsWith('.rebind.example')) setImmediate(callback, null, addresses());
    else otherwise.call(this, name, callback);
  };
}

Object.assign(dns.Resolver.prototype, {
  resolve4: answering(answer, resolve4 as Resolve),
  resolve6: answering(() => [], resolve6 as Resolve),
});
