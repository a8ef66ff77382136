import { RUNTIME } from './defaults.ts';

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

/** OpenSSL's numbers (openssl/obj_mac.h, openssl/crypto.h). */
const [RSA, RSA_PSS, EC, ED25519] = [6, 912, 408, 1087];
const [INDEX_SSL, INDEX_SSL_CTX, INDEX_X509_STORE_CTX] = [0, 1, 5];
const SSL_CTRL_SET_MAX_CERT_LIST = 51;
const X509_V_ERR_APPLICATION_VERIFICATION = 50;

const OPENSSL = {
  CRYPTO_get_ex_new_index: {
    arguments: ['int32', 'int64', 'pointer', 'pointer', 'pointer', 'pointer'],
    return: 'int32',
  },
  SSL_CTX_up_ref: { arguments: ['pointer'], return: 'int32' },
  SSL_CTX_free: { arguments: ['pointer'], return: 'void' },
  SSL_CTX_ctrl: { arguments: ['pointer', 'int32', 'int64', 'pointer'], return: 'int64' },
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
} as const;

/** A function that OpenSSL calls for each new object of a kind. */
const CRYPTO_EX_NEW: Signature = {
  arguments: ['pointer', 'pointer', 'pointer', 'int32', 'int64', 'pointer'],
  return: 'void',
};

type Pointer = bigint;
interface Signature {
  readonly arguments: readonly string[];
  readonly return: string;
}

/** What is used of `node:ffi`, which Node has from version 26 on. */
interface Library {
  getFunctions(signatures: Readonly<Record<string, Signature>>): OpenSsl;
  registerCallback(signature: Signature, callback: (first: Pointer) => unknown): Pointer;
}
type OpenSsl = Readonly<Record<keyof typeof OPENSSL, (...args: readonly (Pointer | number | Buffer)[]) => never>>;

let bounded: boolean | undefined;

/**
 * Bounds what it costs to verify the certificates of any peer of this process, clients' and servers'. OpenSSL verifies every signature of
 * the chain that a peer sends, up to 100, before anybody sees the chain, and Node has no option for less. 60 RSA keys of 3,072 bits with
 * exponents as long take half a second of the event loop. So OpenSSL is told, through `node:ffi`, to read no more than a
 * few certificates and to ask here first. What is beyond the bounds fails a client's handshake with us, see `boundMet`; a server's goes on
 * unverified, and `presentedBy` refuses it.
 * @param warn called if the runtime has no way to do so. Deno has bounds of its own
 * @returns whether it is bounded
 */
export function boundVerification(warn: (message: string) => void = () => {}): boolean {
  bounded ??= process.versions.deno !== undefined || canBound();
  if (!bounded)
    warn(
      `Node ${process.versions.node} does not bound what verifying a peer's certificates costs, so a stranger can hold up this program: use Node 26`,
    );
  return bounded;
}

/** Not where Node was built with another library than OpenSSL 3, which lacks a function. */
function canBound(): boolean {
  try {
    return bound();
  } catch {
    return false;
  }
}

function bound(): boolean {
  const library = openLibrary();
  if (!library) return false;
  const openssl = library.getFunctions(OPENSSL);
  const refuse = library.registerCallback({ arguments: ['pointer'], return: 'int32' }, (context) => {
    openssl.X509_STORE_CTX_set_error(context, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  });
  const onNew = (index: number, made: (object: Pointer) => void) => {
    const callback = library.registerCallback(CRYPTO_EX_NEW, made);
    return openssl.CRYPTO_get_ex_new_index(index, 0n, 0n, callback, 0n, 0n) >= 0;
  };
  // SSL_CTX_new sets the default after it has called this. SSL_new takes over what its context has.
  const fresh: Pointer[] = [];
  const limit = () => {
    for (const context of fresh.splice(0)) {
      openssl.SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_CERT_LIST, BigInt(RUNTIME.handshakeMessageBytes), 0n);
      openssl.SSL_CTX_free(context);
    }
  };
  return (
    onNew(INDEX_SSL_CTX, (context) => {
      openssl.SSL_CTX_up_ref(context);
      if (fresh.push(context) === 1) process.nextTick(limit);
    }) &&
    onNew(INDEX_SSL, limit) &&
    // Called at the end of X509_STORE_CTX_init, which comes before each verification.
    onNew(INDEX_X509_STORE_CTX, (context) => {
      if (!costsLittle(openssl, context)) openssl.X509_STORE_CTX_set_verify(context, refuse);
    })
  );
}

/** Loads what this process has loaded already. */
function openLibrary(): Library | undefined {
  const { emitWarning } = process;
  // It warns that it is experimental.
  process.emitWarning = () => {};
  try {
    const ffi = process.getBuiltinModule('node:ffi') as { DynamicLibrary: new (path: null) => Library } | undefined;
    return ffi && new ffi.DynamicLibrary(null);
  } catch {
    return undefined;
  } finally {
    process.emitWarning = emitWarning;
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
