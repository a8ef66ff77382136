import { generateKeyPairSync, randomBytes } from 'node:crypto';
import type { IdentityTexts } from './authority.ts';

/** What makes each certificate of a chain cost milliseconds to verify. */
export type CostlyKind = 'rsa' | 'dsa';

/**
 * Makes what an attacker without any credential shows: a chain of certificates whose keys and signatures are random numbers, chosen so that
 * finding each signature false takes as long as possible. Only the first one has a real key.
 * @param count how many certificates stand above the first one
 */
export function costlyChain(count: number, kind: CostlyKind = 'rsa'): IdentityTexts {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { keyOf, signature, signedWith } = kind === 'rsa' ? rsa : dsa;
  const chain = Array.from({ length: count + 1 }, (_, level) => {
    const key = level === 0 ? publicKey.export({ type: 'spki', format: 'der' }) : keyOf();
    const names = [name(`level ${level + 1}`), VALIDITY, name(`level ${level}`)];
    const signed = sequence(VERSION_3, integer(Buffer.from([1])), signedWith, ...names, key, AUTHORITY);
    return sequence(signed, signedWith, bits(signature()));
  });
  const cert = chain.map((der) => `-----BEGIN CERTIFICATE-----\n${lines(der)}\n-----END CERTIFICATE-----\n`).join('');
  return { cert, key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

/** 3,072 bits are the most with which OpenSSL takes an exponent of more than 64. */
const rsa = {
  signedWith: sequence(identifier('2a864886f70d01010b'), Buffer.from([5, 0])),
  keyOf: () =>
    sequence(
      sequence(identifier('2a864886f70d010101'), Buffer.from([5, 0])),
      bits(sequence(integer(number(384)), integer(number(384, 0x7f)))),
    ),
  signature: () => number(384, 0x10),
};

/** 10,000 bits are the most that OpenSSL takes. */
const dsa = {
  signedWith: sequence(identifier('608648016503040302')),
  keyOf: () =>
    sequence(
      sequence(
        identifier('2a8648ce380401'),
        sequence(integer(number(1250)), integer(number(32)), integer(number(1249))),
      ),
      bits(integer(number(1249))),
    ),
  signature: () => sequence(integer(number(31)), integer(number(31))),
};

const VERSION_3 = element(0xa0, integer(Buffer.from([2])));
const VALIDITY = sequence(element(0x17, Buffer.from('200101000000Z')), element(0x17, Buffer.from('491231235959Z')));
/** Basic constraints, with an authority's flag. */
const AUTHORITY = element(
  0xa3,
  sequence(sequence(identifier('551d13'), element(4, sequence(element(1, Buffer.from([255])))))),
);

function element(tag: number, ...parts: readonly Buffer[]): Buffer {
  const value = Buffer.concat(parts);
  const { length } = value;
  const shown = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...shown]), value]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return element(0x30, ...parts);
}

function integer(value: Buffer): Buffer {
  return element(2, Buffer.concat([Buffer.alloc((value[0] as number) >> 7), value]));
}

function identifier(hex: string): Buffer {
  return element(6, Buffer.from(hex, 'hex'));
}

function bits(value: Buffer): Buffer {
  return element(3, Buffer.from([0]), value);
}

function name(commonName: string): Buffer {
  return sequence(element(0x31, sequence(identifier('550403'), element(0x0c, Buffer.from(commonName)))));
}

/** A random odd number. */
function number(bytes: number, first = 0xff): Buffer {
  const value = randomBytes(bytes);
  value[0] = first;
  value[bytes - 1] = (value[bytes - 1] as number) | 1;
  return value;
}

function lines(der: Buffer): string {
  return der.toString('base64').replace(/(.{64})/g, '$1\n');
}
