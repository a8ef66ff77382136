import { type KeyObject, sign } from 'node:crypto';
import { keyPair } from '@isthmus/runtime/testing';

const HOUR = 3600;

/** What a token says; see RFC 7519 section 4.1. Times in seconds since the epoch. */
export interface TokenClaims {
  readonly iss: string;
  readonly aud: string | readonly string[];
  readonly sub: string;
  readonly exp: number;
  readonly nbf?: number;
}

/** A cluster's issuer of service account tokens, whose keys can be rotated. */
export class TokenIssuer {
  readonly issuer: string;
  readonly audience = 'system:konnectivity-server';
  #keys = [newKey(1)];
  #made = 1;

  constructor(issuer = 'https://kubernetes.default.svc.cluster.local') {
    this.issuer = issuer;
  }

  /** Its public keys, as a JWKS (RFC 7517 section 5). */
  get jwks(): string {
    return JSON.stringify({
      keys: this.#keys.map(({ kid, pair }) => ({ ...pair.publicKey.export({ format: 'jwk' }), kid, alg: 'ES256' })),
    });
  }

  /** Signs with a new key from now on, and publishes no other. */
  rotate(): void {
    this.#keys = [newKey(++this.#made)];
  }

  /** A token that is good for an hour, unless `claims` say something else. */
  token(subject: string, claims: Partial<TokenClaims> = {}): string {
    const [{ kid, pair }] = this.#keys as [Key];
    const now = Math.floor(Date.now() / 1000);
    const all: TokenClaims = { iss: this.issuer, aud: [this.audience], sub: subject, exp: now + HOUR, ...claims };
    const input = `${encoded({ alg: 'ES256', kid })}.${encoded(all)}`;
    const signature = sign('sha256', Buffer.from(input), { key: pair.privateKey, dsaEncoding: 'ieee-p1363' });
    return `${input}.${signature.toString('base64url')}`;
  }
}

interface Key {
  readonly kid: string;
  readonly pair: { readonly publicKey: KeyObject; readonly privateKey: KeyObject };
}

function newKey(number: number): Key {
  return { kid: `key-${number}`, pair: keyPair() };
}

function encoded(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
