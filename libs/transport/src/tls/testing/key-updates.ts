import { createCipheriv, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import tls from 'node:tls';

/** RFC 8446 section 7.1, for what one SHA-256 holds. */
function derived(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.of(0, length, name.length), name, Buffer.of(0, 1)]);
  return createHmac('sha256', secret).update(info).digest().subarray(0, length);
}

/** Records that change a client's keys, each with the keys that the one before has made (RFC 8446 section 4.6.3). */
function keyUpdates(first: Buffer, count: number): Buffer {
  const records: Buffer[] = [];
  // A handshake message: key_update, of one byte, which asks for no other in return. Its record is the first with its keys.
  const message = Buffer.of(24, 0, 0, 1, 0, 22);
  const head = Buffer.of(23, 3, 3, 0, message.length + 16);
  for (let [n, secret] = [0, first]; n < count; n++, secret = derived(secret, 'traffic upd', 32)) {
    const cipher = createCipheriv('aes-128-gcm', derived(secret, 'key', 16), derived(secret, 'iv', 12)).setAAD(head);
    records.push(head, cipher.update(message), cipher.final(), cipher.getAuthTag());
  }
  return Buffer.concat(records);
}

/** A client of TLS 1.3 that has sent no data, and can change its keys any number of times. @returns what sends that, and the socket below it */
export async function keyUpdater(port: number, options: tls.ConnectionOptions) {
  const below: Socket = connect(port, '127.0.0.1').on('error', () => {});
  const through = new Duplex({
    read() {},
    write: (chunk, _encoding, done) => void below.write(chunk, done),
    final: (done) => done(),
  });
  below.on('data', (chunk) => through.push(chunk)).on('close', () => through.push(null));
  const ciphers = 'TLS_AES_128_GCM_SHA256';
  const client = tls.connect({ ...options, socket: through, minVersion: 'TLSv1.3', ciphers }).on('error', () => {});
  const secrets = new Map<string, Buffer>();
  client.on('keylog', (line: Buffer) => {
    const [label = '', , secret = ''] = line.toString().trim().split(' ');
    secrets.set(label, Buffer.from(secret, 'hex'));
  });
  await once(client, 'secureConnect');
  const secret = secrets.get('CLIENT_TRAFFIC_SECRET_0') as Buffer;
  const change = (count: number) => void below.write(keyUpdates(secret, count));
  return { below, change };
}
