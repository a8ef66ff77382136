import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';

/**
 * A key pair on P-256. It is read from PEM, because the keys that Node 20 generates share a lock with the job that made them: if that is
 * collected while one of them is exported, the process waits for itself for ever.
 */
export function keyPair(): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  const { publicKey, privateKey } = generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    publicKeyEncoding: { format: 'pem', type: 'spki' },
    privateKeyEncoding: { format: 'pem', type: 'pkcs8' },
  });
  return { publicKey: createPublicKey(publicKey), privateKey: createPrivateKey(privateKey) };
}
