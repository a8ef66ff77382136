import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import tls, { type ConnectionOptions, type PeerCertificate, type TLSSocket } from 'node:tls';
import { dnsNames } from '@isthmus/runtime';
import { describe, faultOf } from './certificate.ts';
import { inWords } from './handshake.ts';

/** What the server's certificate must prove. */
export type Identity = { readonly role: string } | { readonly hosts: readonly string[]; readonly orName: string };

/** A connection whose server has not proven its identity yet. */
export interface Handshake {
  readonly socket: TLSSocket;
  /** Resolves when it has. Rejects if it cannot, with its certificate and what is wrong with it, after destroying the socket. */
  readonly done: Promise<unknown>;
}

/** Connects, and verifies that the server's certificate is valid for a server and proves an identity. */
export function secureConnect(options: Omit<ConnectionOptions, 'checkServerIdentity'>, identity: Identity): Handshake {
  let shown: X509Certificate | undefined;
  const socket = tls.connect({
    ...options,
    checkServerIdentity: (_name, certificate) => {
      shown ??= certificate.raw && new X509Certificate(certificate.raw);
      const fault = shown ? faultOf(shown, undefined, wanted(identity)) : 'it showed no certificate';
      return fault === undefined ? misnamed(shown as X509Certificate, certificate, identity) : new Error(fault);
    },
  });
  // Before Node verifies the chain: once it has destroyed the socket for it, the certificate is no longer known.
  socket.prependListener('secure', () => {
    shown = socket.getPeerX509Certificate();
  });
  const done = once(socket, 'secureConnect').catch((error: Error) => {
    throw refusal(error, shown, wanted(identity));
  });
  return { socket, done };
}

function wanted(identity: Identity) {
  return { use: 'server', ...('role' in identity && { role: identity.role }) } as const;
}

function misnamed(shown: X509Certificate, certificate: PeerCertificate, identity: Identity): Error | undefined {
  if ('role' in identity) return undefined;
  const known = certificate.raw ? certificate : (shown.toLegacyObject() as PeerCertificate);
  if (dnsNames(shown).includes(identity.orName)) return undefined;
  const faults = identity.hosts.map((host) => tls.checkServerIdentity(host, known));
  return faults.includes(undefined) ? undefined : faults[0];
}

function refusal(error: Error, shown: X509Certificate | undefined, need: ReturnType<typeof wanted>): Error {
  const told = inWords(error);
  if (told !== error) return told;
  const { code } = error as NodeJS.ErrnoException;
  // Deno verifies during the handshake, keeps nothing of the certificate, and has one code for every fault.
  if (!shown && code === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE') {
    return new Error(
      `the server's certificate is refused: ${error.message}; isthmus check says what is wrong with it`,
      { cause: error },
    );
  }
  if (!shown) return error;
  // Errors that the runtime found have a code of OpenSSL's. Those found above are complete already.
  const untrusted = code !== undefined && /^[A-Z_]+$/.test(code) && !code.startsWith('E') ? code : undefined;
  const fault = (untrusted && faultOf(shown, untrusted, need)) ?? error.message;
  return new Error(`the server's certificate (${describe(shown)}) is refused: ${fault}`, { cause: error });
}
