import type { Socket } from 'node:net';
import { createSecureContext, type Server, type TLSSocket } from 'node:tls';
import { RUNTIME } from './defaults.ts';
import { type Functions, type Library, openFfi, type Pointer, type Signature } from './ffi.ts';

/** Keys that Go verifies too (crypto/x509): RSA, ECDSA on NIST's curves, Ed25519. Others may take hundreds of times as long. */
const CURVES: readonly string[] = ['secp224r1', 'prime256v1', 'secp384r1', 'secp521r1'];

/** What OpenSSL says of a peer that met a bound, and what it means. Of other certificates, Node tells after the handshake what is wrong. */
const COSTLY = `its certificates would take too long to verify: at most ${RUNTIME.handshakeCertificates} with ${RUNTIME.sentCertificatesBytes / 1024} KiB together, with keys of RSA up to ${RUNTIME.rsaMostBits} bits and an exponent of 32 bits, ECDSA on P-224 to P-521, or Ed25519`;
const MEANINGS: readonly (readonly [said: string, means: string])[] = [
  ['certificate verify failed', COSTLY],
  ['application verification failure', COSTLY],
  [
    'excessive message size',
    `it sent more than ${RUNTIME.handshakeMessageBytes / 1024} KiB of certificates, or of authorities' names`,
  ],
];

/** Returns which bound a peer has met, by the error of its handshake; undefined if none. */
export function boundMet({ message }: Error): string | undefined {
  return MEANINGS.find(([said]) => message.includes(said))?.[1];
}

/** OpenSSL's numbers (openssl/obj_mac.h, openssl/crypto.h, openssl/ssl.h). */
const [RSA, RSA_PSS, EC, ED25519] = [6, 912, 408, 1087];
const [INDEX_SSL, INDEX_SSL_CTX, INDEX_X509_STORE_CTX] = [0, 1, 5];
const [SSL_CTRL_GET_MAX_CERT_LIST, SSL_CTRL_SET_MAX_CERT_LIST] = [50, 51];
const X509_V_ERR_APPLICATION_VERIFICATION = 50;
const [SSL_RECEIVED_SHUTDOWN, SSL_CB_ACCEPT_EXIT] = [2, 0x2002];

const OPENSSL = {
  CRYPTO_get_ex_new_index: {
    arguments: ['int32', 'int64', 'pointer', 'pointer', 'pointer', 'pointer'],
    return: 'int32',
  },
  SSL_CTX_up_ref: { arguments: ['pointer'], return: 'int32' },
  SSL_CTX_free: { arguments: ['pointer'], return: 'void' },
  SSL_CTX_set_num_tickets: { arguments: ['pointer', 'uint64'], return: 'int32' },
  SSL_CTX_ctrl: { arguments: ['pointer', 'int32', 'int64', 'pointer'], return: 'int64' },
  SSL_set_info_callback: { arguments: ['pointer', 'pointer'], return: 'void' },
  SSL_set_shutdown: { arguments: ['pointer', 'int32'], return: 'void' },
  X509_STORE_CTX_get0_untrusted: { arguments: ['pointer'], return: 'pointer' },
  X509_STORE_CTX_set_error: { arguments: ['pointer', 'int32'], return: 'void' },
  X509_STORE_CTX_set_verify: { arguments: ['pointer', 'pointer'], return: 'void' },
  OPENSSL_sk_num: { arguments: ['pointer'], return: 'int32' },
  OPENSSL_sk_value: { arguments: ['pointer', 'int32'], return: 'pointer' },
  i2d_X509: { arguments: ['pointer', 'pointer'], return: 'int32' },
  X509_get0_pubkey: { arguments: ['pointer'], return: 'pointer' },
  EVP_PKEY_get_base_id: { arguments: ['pointer'], return: 'int32' },
  EVP_PKEY_get_bits: { arguments: ['pointer'], return: 'int32' },
  EVP_PKEY_get_bn_param: { arguments: ['pointer', 'buffer', 'buffer'], return: 'int32' },
  EVP_PKEY_get_group_name: { arguments: ['pointer', 'buffer', 'uint64', 'pointer'], return: 'int32' },
  BN_num_bits: { arguments: ['pointer'], return: 'int32' },
  BN_free: { arguments: ['pointer'], return: 'void' },
  // The rest is only for the proof at the start.
  SSL_new: { arguments: ['pointer'], return: 'pointer' },
  SSL_free: { arguments: ['pointer'], return: 'void' },
  d2i_X509: { arguments: ['pointer', 'buffer', 'int64'], return: 'pointer' },
  X509_free: { arguments: ['pointer'], return: 'void' },
  OPENSSL_sk_new_null: { arguments: [], return: 'pointer' },
  OPENSSL_sk_push: { arguments: ['pointer', 'pointer'], return: 'int32' },
  OPENSSL_sk_free: { arguments: ['pointer'], return: 'void' },
  X509_STORE_new: { arguments: [], return: 'pointer' },
  X509_STORE_add_cert: { arguments: ['pointer', 'pointer'], return: 'int32' },
  X509_STORE_free: { arguments: ['pointer'], return: 'void' },
  X509_STORE_CTX_new: { arguments: [], return: 'pointer' },
  X509_STORE_CTX_init: { arguments: ['pointer', 'pointer', 'pointer', 'pointer'], return: 'int32' },
  X509_verify_cert: { arguments: ['pointer'], return: 'int32' },
  X509_STORE_CTX_get_error: { arguments: ['pointer'], return: 'int32' },
  X509_STORE_CTX_free: { arguments: ['pointer'], return: 'void' },
} as const;

/** A function that OpenSSL calls for each new object of a kind. */
const CRYPTO_EX_NEW: Signature = {
  arguments: ['pointer', 'pointer', 'pointer', 'int32', 'int64', 'pointer'],
  return: 'void',
};

/** A function that OpenSSL calls for each step of a connection. */
const SSL_INFO: Signature = { arguments: ['pointer', 'int32', 'int32'], return: 'void' };

type OpenSsl = Functions<keyof typeof OPENSSL>;

let bounded: boolean | Error | undefined;

/**
 * What the callbacks have, of this process: functions that OpenSSL may call, for ever, contexts that are held until the end of a tick, and
 * connections that are open, whose clients may change their keys.
 */
export const kept = { callbacks: 0, contexts: 0, connections: 0 };

/** The connection that OpenSSL made last. */
let newest: Pointer | undefined;
/** Unset where nothing is bounded. */
let countUpdates: ((connection: Pointer, socket: TLSSocket, tooMany: () => void) => void) | undefined;

/**
 * Bounds how often clients of a server may change their keys after the handshake (KeyUpdate, RFC 8446 section 4.6.3). That is 27 bytes, which take
 * OpenSSL 9 microseconds, and it reads on until data come: 512 KiB of them stopped a process for .19 s. Does nothing without `node:ffi`. Call it
 * before others listen for connections.
 * @returns what to call with each connection after its handshake, and with the socket below it. `tooMany` is to destroy it
 */
export function boundKeyUpdates(
  server: Server,
): (socket: TLSSocket, below: Socket | undefined, tooMany: () => void) => void {
  const made = new WeakMap<Socket, Pointer>();
  // Node makes a connection's in between.
  server.prependListener('connection', () => {
    newest = undefined;
  });
  server.on('connection', (below: Socket) => {
    if (newest !== undefined) made.set(below, newest);
  });
  return (socket, below, tooMany) => {
    const connection = below && made.get(below);
    // Node itself bounds how often keys may change before that.
    if (connection !== undefined && socket.getProtocol() === 'TLSv1.3') countUpdates?.(connection, socket, tooMany);
  };
}

/**
 * Bounds what it costs to verify the certificates of any peer of this process, clients' and servers'. OpenSSL verifies every signature of
 * the chain that a peer sends, up to 100, before anybody sees the chain, and Node has no option for less. 60 RSA keys of 3,072 bits with
 * exponents as long take half a second of the event loop. So OpenSSL is told, through `node:ffi`, to read no more than a
 * few certificates and to ask here first. What is beyond the bounds fails a client's handshake with us, see `boundMet`; a server's goes on
 * unverified, and `presentedBy` refuses it.
 * @param warn called if the runtime has no `node:ffi`, or is told to do without. Deno has bounds of its own
 * @returns whether it is bounded
 * @throws Error if `node:ffi` is there and does not do it: OpenSSL is laid out in another way than this program was written for
 */
export function boundVerification(warn: (message: string) => void = () => {}): boolean {
  bounded ??= process.versions.deno !== undefined || triedToBound();
  if (bounded instanceof Error) throw bounded;
  if (!bounded)
    warn(
      `Node ${process.versions.node} runs without node:ffi, so verifying a stranger's certificates has no bound: 80 KB of them stop this program for half a second, each time they are sent. Use Node 26 without --no-experimental-ffi, or let only known addresses reach its TLS ports`,
    );
  return bounded;
}

function triedToBound(): boolean | Error {
  const ffi = openFfi();
  if (!ffi) return false;
  try {
    bound(ffi);
    return true;
  } catch (cause) {
    const { node, openssl } = process.versions;
    return new Error(
      `Node ${node} with OpenSSL ${openssl} does not bound what verifying a peer's certificates costs, as this program does it (docs/adr/0008): ${(cause as Error).message}. Use the Node of the image, or do without the bound: NODE_OPTIONS=--no-experimental-ffi`,
      { cause },
    );
  }
}

/** @throws Error if OpenSSL lacks a function, or does not do what is expected of it */
function bound({ library, ffi }: NonNullable<ReturnType<typeof openFfi>>): void {
  const openssl = library.getFunctions(OPENSSL);
  const registered: Library['registerCallback'] = (signature, callback) => {
    kept.callbacks++;
    return library.registerCallback(signature, callback);
  };
  const refuse = registered({ arguments: ['pointer'], return: 'int32' }, (context) => {
    openssl.X509_STORE_CTX_set_error(context, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  });
  const onNew = (index: number, made: (object: Pointer) => void) => {
    const callback = registered(CRYPTO_EX_NEW, made);
    if (openssl.CRYPTO_get_ex_new_index(index, 0n, 0n, callback, 0n, 0n) < 0)
      throw new Error(`it takes no callback for objects of kind ${index}`);
  };
  // SSL_CTX_new sets the default after it has called this. SSL_new takes over what its context has.
  const fresh: Pointer[] = [];
  const limit = () => {
    for (const context of fresh.splice(0)) {
      openssl.SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_CERT_LIST, BigInt(RUNTIME.handshakeMessageBytes), 0n);
      // Nobody resumes, and Node has no option for it either.
      openssl.SSL_CTX_set_num_tickets(context, 0n);
      openssl.SSL_CTX_free(context);
      kept.contexts--;
    }
  };
  onNew(INDEX_SSL_CTX, (context) => {
    openssl.SSL_CTX_up_ref(context);
    kept.contexts++;
    if (fresh.push(context) === 1) process.nextTick(limit);
  });
  onNew(INDEX_SSL, (connection) => {
    newest = connection;
    limit();
  });
  // Called at the end of X509_STORE_CTX_init, which comes before each verification.
  onNew(INDEX_X509_STORE_CTX, (context) => {
    if (!isKnownToCostLittle(openssl, context)) openssl.X509_STORE_CTX_set_verify(context, refuse);
  });
  proveMessages(openssl, fresh);
  proveVerification(openssl, (bytes) => ffi.getRawPointer(bytes));
  const updates = new Map<Pointer, () => void>();
  const stepped = registered(SSL_INFO, (connection, what) => {
    if (what === SSL_CB_ACCEPT_EXIT) updates.get(connection)?.();
  });
  countUpdates = (connection, socket, tooMany) => {
    let [count, since] = [0, performance.now()];
    const updated = () => {
      const now = performance.now();
      if (now - since > RUNTIME.keyUpdatesMs) [count, since] = [0, now];
      if (++count <= RUNTIME.keyUpdates) return;
      // OpenSSL reads no more from here on. It may not lose the connection before it has returned.
      openssl.SSL_set_shutdown(connection, SSL_RECEIVED_SHUTDOWN);
      if (count === RUNTIME.keyUpdates + 1) process.nextTick(tooMany);
    };
    updates.set(connection, updated);
    openssl.SSL_set_info_callback(connection, stepped);
    kept.connections++;
    socket.once('close', () => {
      kept.connections--;
      // OpenSSL may have made another one in its place.
      if (updates.get(connection) === updated) updates.delete(connection);
    });
  };
}

/** Makes a context, and a connection from it, as every connection is made. @throws Error if it is not bounded */
function proveMessages(openssl: OpenSsl, fresh: readonly Pointer[]): void {
  const context = createSecureContext();
  const [made, ...more] = fresh;
  if (made === undefined || more.length > 0) throw new Error('it does not tell of a new context');
  openssl.SSL_CTX_up_ref(made);
  openssl.SSL_free(openssl.SSL_new(made));
  const most = Number(openssl.SSL_CTX_ctrl(made, SSL_CTRL_GET_MAX_CERT_LIST, 0n, 0n));
  openssl.SSL_CTX_free(made);
  if (fresh.length > 0) throw new Error('it does not tell of a new connection');
  if (most !== RUNTIME.handshakeMessageBytes || !context.context)
    throw new Error(`it reads ${most} bytes of certificates`);
}

/** Certificates that signed themselves, DER: an ordinary one, with ECDSA on P-256, and one of RSA with an exponent of 41 bits. */
const P256 =
  'MIIBbzCCARWgAwIBAgIUM/BqobfWrnDlaHdgjaLS3zoNEbIwCgYIKoZIzj0EAwIwDDEKMAgGA1UEAwwBYTAgFw0yNjExMjkwNjA5MTNaGA8yMTI2MTEwNTA2MDkxM1owDDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLBtO1NQ6y7iX+0vcd+ufDyFXUT1eyMcP0vhzWN/Te6scRfTNf/pXr4M5MlNs7Wfs/v9aLnh22d7zFUDsbjEyxijUzBRMB0GA1UdDgQWBBTZAP91GpvLMU7u4oI7+fuaQZNuvjAfBgNVHSMEGDAWgBTZAP91GpvLMU7u4oI7+fuaQZNuvjAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCwDVlBRnxXzFJTgCW6n3EnJJ4ePVrA7v6TgcwsxWNgMwIgHwdotYEGoqmxaC7LZT+yXCUzEU+6LwVwevYI5MtEfTw=';
const LONG_EXPONENT =
  'MIIB+TCCAWKgAwIBAgIUXOYexpOByX4j14r3k82Urguaj4QwDQYJKoZIhvcNAQELBQAwDDEKMAgGA1UEAwwBYTAgFw0yNjExMjkwNjA5MTRaGA8yMTI2MTEwNTA2MDkxNFowDDEKMAgGA1UEAwwBYTCBojANBgkqhkiG9w0BAQEFAAOBkAAwgYwCgYEAkcuyi7CdCz2JaYe8QbXXShJ8EN1tduhYURhDagqgtBYrp8LBYRJpABST/Sjj5KAQ+bwGg8quGdFW2YWI1UGhXZul4Mqud+0l2iDv3rWwmgYGMCWD5fmH60X9ODAfJ/NbBhqr6Akdgum67AaKZYM3bTGBJ9wUshqOp7zaLSdvXvECBgEAAAAAAaNTMFEwHQYDVR0OBBYEFFvevfhH9iUYAW5x/PFLP1Rd+uF6MB8GA1UdIwQYMBaAFFvevfhH9iUYAW5x/PFLP1Rd+uF6MA8GA1UdEwEB/wQFMAMBAf8wDQYJKoZIhvcNAQELBQADgYEABii/S5vzZ7DxaGIJV9OMoRRkKtacEqnqVF1Eg0ycUS5zWvxdK2Q2AKVPjPVoXafxI2HISu0AqvLotWUyJfaMvKP9Qbp29d6RGE/NZLrIB2KAbGH5+YOPEdVXfdAFVPrgfDVZ8JVhi9OEjaNP7wjE7haCD30U5hPqknuae1GIvGs=';
const PROOFS: readonly (readonly [what: string, der: string, sent: number, refused: boolean])[] = [
  ['an ordinary certificate', P256, 1, false],
  ['too many certificates', P256, RUNTIME.handshakeCertificates + 1, true],
  ['an RSA key with a long exponent', LONG_EXPONENT, 1, true],
];

/** Verifies certificates as a handshake does. @throws Error if one is verified that must not be, or the other way */
function proveVerification(openssl: OpenSsl, pointerTo: (bytes: Buffer) => Pointer): void {
  for (const [what, base64, sent, refused] of PROOFS) {
    const der = Buffer.from(base64, 'base64');
    const place = Buffer.alloc(8);
    place.writeBigUInt64LE(pointerTo(der));
    const certificate: Pointer = openssl.d2i_X509(0n, place, BigInt(der.length));
    if (!certificate) throw new Error(`it does not read ${what}`);
    const store: Pointer = openssl.X509_STORE_new();
    const stack: Pointer = openssl.OPENSSL_sk_new_null();
    openssl.X509_STORE_add_cert(store, certificate);
    for (let index = 0; index < sent; index++) openssl.OPENSSL_sk_push(stack, certificate);
    const context: Pointer = openssl.X509_STORE_CTX_new();
    openssl.X509_STORE_CTX_init(context, store, certificate, stack);
    openssl.X509_verify_cert(context);
    const error: number = openssl.X509_STORE_CTX_get_error(context);
    openssl.X509_STORE_CTX_free(context);
    openssl.OPENSSL_sk_free(stack);
    openssl.X509_STORE_free(store);
    openssl.X509_free(certificate);
    if ((error === X509_V_ERR_APPLICATION_VERIFICATION) !== refused)
      throw new Error(`it ${refused ? 'verifies' : 'does not verify'} ${what} (${error})`);
  }
}

/** A callback may not throw. */
function isKnownToCostLittle(openssl: OpenSsl, context: Pointer): boolean {
  try {
    return costsLittle(openssl, context);
  } catch {
    return false;
  }
}

function costsLittle(openssl: OpenSsl, context: Pointer): boolean {
  const sent: Pointer = openssl.X509_STORE_CTX_get0_untrusted(context);
  const count: number = sent ? openssl.OPENSSL_sk_num(sent) : 0;
  if (count > RUNTIME.handshakeCertificates) return false;
  let bytes = 0;
  for (let index = 0; index < count; index++) {
    const certificate: Pointer = openssl.OPENSSL_sk_value(sent, index);
    bytes += openssl.i2d_X509(certificate, 0n);
    const key: Pointer = openssl.X509_get0_pubkey(certificate);
    if (bytes > RUNTIME.sentCertificatesBytes || (key && !isOrdinary(openssl, key))) return false;
  }
  return true;
}

function isOrdinary(openssl: OpenSsl, key: Pointer): boolean {
  const algorithm: number = openssl.EVP_PKEY_get_base_id(key);
  if (algorithm === RSA || algorithm === RSA_PSS)
    return (
      openssl.EVP_PKEY_get_bits(key) <= RUNTIME.rsaMostBits &&
      exponentBits(openssl, key) <= RUNTIME.handshakeExponentBits
    );
  return algorithm === EC ? CURVES.includes(curveOf(openssl, key)) : algorithm === ED25519;
}

const EXPONENT = Buffer.from('e\0');

function exponentBits(openssl: OpenSsl, key: Pointer): number {
  const place = Buffer.alloc(8);
  if (openssl.EVP_PKEY_get_bn_param(key, EXPONENT, place) !== 1) return Number.POSITIVE_INFINITY;
  const exponent = place.readBigUInt64LE();
  const bits = openssl.BN_num_bits(exponent);
  openssl.BN_free(exponent);
  return bits;
}

/** Empty for a curve whose parameters are in the key. */
function curveOf(openssl: OpenSsl, key: Pointer): string {
  const name = Buffer.alloc(32);
  return openssl.EVP_PKEY_get_group_name(key, name, BigInt(name.length), 0n) === 1
    ? name.toString('latin1', 0, name.indexOf(0))
    : '';
}
