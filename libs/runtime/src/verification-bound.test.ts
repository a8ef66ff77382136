import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { connect, createSecureContext, createServer } from 'node:tls';
import { promisify } from 'node:util';
import { boundVerification, kept } from './verification-bound.ts';

/** CI sets it to the oldest one that is supported. */
const NODE = process.env.ISTHMUS_NODE ?? process.execPath;
const MODULE = new URL('verification-bound.ts', import.meta.url).href;

/** Binds OpenSSL in a process of its own, and prints what it returns, warns of or throws. @param first is run before, with node:ffi as `real` */
async function bindIn(first: string, ...flags: readonly string[]): Promise<string> {
  const script = `
    const get = process.getBuiltinModule;
    const real = get.call(process, 'node:ffi');
    ${first}
    const { boundVerification } = await import(${JSON.stringify(MODULE)});
    for (let time = 0; time < 2; time++)
      try { console.log(boundVerification((message) => console.log(message))); } catch ({ message }) { console.log(message); }
  `;
  const args = ['--no-warnings', ...flags, '--input-type=module', '--eval', script];
  return (await promisify(execFile)(NODE, args)).stdout;
}

/** Lets OpenSSL's functions be others, as they would be if it were laid out in another way. */
function changed(functions: string): string {
  return `
    class DynamicLibrary {
      library = new real.DynamicLibrary(null);
      getFunctions(signatures) {
        const was = this.library.getFunctions(signatures);
        return { ...was, ${functions} };
      }
      registerCallback(...given) { return this.library.registerCallback(...given); }
    }
    const ffi = { DynamicLibrary, getRawPointer: real.getRawPointer };
    process.getBuiltinModule = (id) => (id === 'node:ffi' ? ffi : get.call(process, id));
  `;
}

const shifted = (from: number) =>
  `CRYPTO_get_ex_new_index: (index, ...more) => was.CRYPTO_get_ex_new_index(index === ${from} ? 11 : index, ...more)`;

/** What is different, and what the proof says of it. */
const LAYOUTS: readonly (readonly [what: string, functions: string, said: RegExp])[] = [
  ['contexts have another number', shifted(1), /it does not tell of a new context/],
  ['connections have another number', shifted(0), /it does not tell of a new connection/],
  ['verifications have another number', shifted(5), /it verifies too many certificates/],
  ['a number is refused', 'CRYPTO_get_ex_new_index: () => -1', /it takes no callback for objects of kind 1/],
  ['a limit has another number', 'SSL_CTX_ctrl: () => 0n', /it reads 0 bytes of certificates/],
  ['certificates are not counted', 'OPENSSL_sk_num: () => 0', /it verifies too many certificates/],
  ['kinds of keys have other numbers', 'EVP_PKEY_get_base_id: () => 7', /it does not verify an ordinary certificate/],
  ['a curve has another name', 'EVP_PKEY_get_group_name: () => 0', /it does not verify an ordinary certificate/],
  ['exponents are not read', 'BN_num_bits: () => 17', /it verifies an RSA key with a long exponent/],
  ['a verdict is not taken', 'X509_STORE_CTX_set_verify: () => {}', /it verifies too many certificates/],
  [
    'a function throws',
    'X509_get0_pubkey() { throw new Error("gone"); }',
    /it does not verify an ordinary certificate/,
  ],
  ['a function is missing', '...(() => { throw new Error("undefined symbol: SSL_CTX_ctrl"); })()', /undefined symbol/],
];

const onDeno = 'Deno' in globalThis && 'Deno has bounds of its own';
const hasFfi = () => execFileSync(NODE, ['-p', 'process.getBuiltinModule("node:ffi") !== undefined']).includes('true');
const without = onDeno || (hasFfi() ? false : 'this Node has no node:ffi');

for (const [what, functions, said] of LAYOUTS)
  test(`a program does not start where ${what}`, { skip: without }, async () => {
    const [first, second] = (await bindIn(changed(functions))).trim().split('\n');
    assert.match(first ?? '', said);
    assert.match(first ?? '', /^Node \S+ with OpenSSL \S+ does not bound .* NODE_OPTIONS=--no-experimental-ffi$/);
    assert.equal(second, first, 'nor when it asks again');
  });

const WARNS = /^Node \S+ runs without node:ffi, .* 80 KB of them stop this program for half a second[^\n]*\nfalse\n/;

test('a program on a Node without node:ffi starts, and says what that costs', { skip: onDeno }, async () => {
  assert.match(await bindIn('process.getBuiltinModule = () => undefined;'), WARNS);
  assert.match(await bindIn(''), without ? WARNS : /^true\ntrue\n$/);
});

test('a program that is told to do without says what that costs', { skip: without }, async () => {
  for (const flags of [['--no-experimental-ffi'], ['--permission', '--allow-fs-read=*']])
    assert.match(await bindIn('', ...flags), WARNS);
});

test('the callbacks keep nothing, however many contexts and connections there were', {
  skip: onDeno || (boundVerification() ? false : 'this Node has no node:ffi'),
}, async (context) => {
  const { callbacks } = kept;
  const server = createServer({}, (socket) => socket.destroy()).on('tlsClientError', () => {});
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  for (let time = 0; time < 50; time++) {
    for (let more = 0; more < 20; more++) createSecureContext();
    assert.equal(kept.contexts, 20);
    const client = connect({ port, host: '127.0.0.1' }).on('error', () => {});
    await new Promise((resolve) => client.on('close', resolve));
    assert.equal(kept.contexts, 0);
  }
  assert.equal(kept.callbacks, callbacks);
  assert.equal(callbacks, 5);
});
