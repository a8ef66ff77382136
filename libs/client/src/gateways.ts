import { connect, isIP, type Socket } from 'node:net';
import { connect as connectTls, type SecureContextOptions } from 'node:tls';
import { CLIENT } from './defaults.ts';
import { type Answer, DialError, readAnswer } from './errors.ts';

/** How a caller proves itself: by a client certificate, by a token, or by a tenant's name and its token. */
export type Credentials =
  | { readonly cert: string | Buffer; readonly key: string | Buffer }
  | { readonly token: string; readonly tenant?: string };

/** Where a gateway accepts callers. */
export type Gateway =
  | { readonly name: string; readonly path: string }
  | { readonly name: string; readonly host: string; readonly port: number };

/** @throws TypeError for a URL that is neither `https://host:port` nor `unix:/path` */
export function gatewayOf(text: string): Gateway {
  if (/^unix:\/./.test(text)) return { name: text, path: text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const more = url && (url.pathname !== '/' || url.search || url.hash || url.username || url.password);
  // The text is not shown: a proxy's URL may have a password in it.
  if (url?.protocol !== 'https:' || more) throw new TypeError('a gateway is https://host:port or unix:/path');
  return { name: text, host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) || 443 };
}

/** Connects to a gateway, with its handshake. Rejects with what the socket says; destroys the socket once the signal aborts. */
export function connected(gateway: Gateway, tls: SecureContextOptions, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const local = 'path' in gateway;
    const socket = local ? connect({ path: gateway.path, allowHalfOpen: true }) : secure(gateway, tls);
    const settle = (error?: Error) => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      socket.off('error', settle).off('close', closed);
      if (!error) return resolve(socket);
      socket.on('error', () => {}).destroy();
      reject(error);
    };
    const closed = () => settle(new Error('it closed the connection in the handshake'));
    const abort = () => settle(new Error('given up'));
    const timer = setTimeout(() => settle(new Error(`no connection in ${CLIENT.connectMs} ms`)), CLIENT.connectMs);
    signal.addEventListener('abort', abort, { once: true });
    socket.once(local ? 'connect' : 'secureConnect', () => settle());
    socket.on('error', settle).on('close', closed);
  });
}

function secure({ host, port }: { readonly host: string; readonly port: number }, tls: SecureContextOptions): Socket {
  const servername = isIP(host) === 0 ? { servername: host } : {};
  const options = { host, port, ...servername, ...tls, allowHalfOpen: true };
  return connectTls(options).setNoDelay(true).setKeepAlive(true, CLIENT.keepAliveMs);
}

/** Sends CONNECT, and reads the head of the answer. Bytes behind it stay on the socket. */
export function asked(socket: Socket, head: string, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const settle = (error: Error | undefined, answer?: Answer) => {
      signal.removeEventListener('abort', abort);
      socket.off('readable', read).off('error', settle).off('end', closed).off('close', closed);
      if (answer) return resolve(answer);
      socket.on('error', () => {}).destroy();
      reject(error);
    };
    const closed = () => settle(new Error('it closed the connection before an answer'));
    const abort = () => settle(new Error('given up'));
    const read = () => {
      for (let chunk: Buffer | null = socket.read(); chunk !== null; chunk = socket.read()) {
        const searched = Math.max(0, seen.length - 3);
        seen = Buffer.concat([seen, chunk]);
        const end = seen.indexOf('\r\n\r\n', searched);
        if (end >= 0) {
          if (seen.length > end + 4) socket.unshift(seen.subarray(end + 4));
          const answer = readAnswer(seen.toString('latin1', 0, end));
          return settle(new DialError('http_protocol_error', 'its answer is not HTTP/1.1'), answer);
        }
        if (seen.length > CLIENT.headBytes)
          return settle(new Error(`an answer's head of over ${CLIENT.headBytes} bytes`));
      }
    };
    signal.addEventListener('abort', abort, { once: true });
    socket.on('readable', read).on('error', settle).on('end', closed).on('close', closed);
    if (signal.aborted) return abort();
    socket.write(head);
  });
}
