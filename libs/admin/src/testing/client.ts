import { Agent, type IncomingMessage, type RequestOptions, request } from 'node:http';
import { request as requestTls, Agent as TlsAgent } from 'node:https';
import { text } from 'node:stream/consumers';
import { adminApi } from '@isthmus/proto/admin';
import { type AskError, type AskLine, linesOf } from '@isthmus/proto/ask';
import { certificateOf, isFor, isIP, socketPathOf } from '@isthmus/runtime';
import { ADMIN_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { ChannelCredentials, ClientError, createChannel, createClient, Status } from 'nice-grpc';

export interface AdminConnection extends Disposable {
  readonly admin: adminApi.AdminClient;
}

/** Certificates and a key, as PEM. */
export interface AdminClientTls {
  /** Authorities that sign the admin port's certificate. */
  readonly ca: Buffer;
  /** Client certificate, which the admin port asks for. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
}

/**
 * Returns a client of the admin port at `host:port`, or on a unix socket at `unix:/path`, which asks in JSON and fails as a gRPC client does.
 * Without TLS settings, and on unix sockets, it uses plain text.
 */
export function adminClient(address: string, tls?: AdminClientTls): AdminConnection {
  const socketPath = socketPathOf(address);
  const secure = tls && socketPath === undefined;
  // A connection for each question: an admin port takes few of one address, and tests that wait ask often.
  const agent = secure ? new TlsAgent() : new Agent();
  const place = socketPath === undefined ? parseDestination(address) : { host: 'localhost', socketPath };
  const options: RequestOptions = { ...place, agent, path: '/ask', method: 'POST' };
  const certificates = secure ? { ...tls, servername: ADMIN_SERVER_NAME, checkServerIdentity: checkFor(address) } : {};
  const post = (body: object, signal: AbortSignal | undefined) =>
    new Promise<IncomingMessage>((resolve, reject) => {
      const all = {
        ...options,
        ...certificates,
        headers: { 'content-type': 'application/json' },
        ...(signal && { signal }),
      };
      (secure ? requestTls : request)(all, resolve).on('error', reject).end(JSON.stringify(body));
    });
  const methods = Object.entries(adminApi.AdminDefinition.methods).map(([key, method]) => {
    const { name, responseStream, responseType } = method;
    const faultOf = ({ code, message }: AskError) =>
      new ClientError(name, Status[code.toUpperCase() as keyof typeof Status] ?? Status.UNKNOWN, message);
    const many = async function* (message: object, { signal }: { readonly signal?: AbortSignal } = {}) {
      try {
        const question = { method: name, message: jsonOf(message), members: [], timeoutMs: 120_000 };
        const response = await post(question, signal);
        if (response.statusCode !== 200) {
          const said = await text(response);
          throw said.startsWith('{')
            ? faultOf(JSON.parse(said) as AskError)
            : new ClientError(name, Status.PERMISSION_DENIED, said);
        }
        const pieces = response.setEncoding('utf8') as AsyncIterable<string>;
        for await (const line of linesOf(pieces, 2 ** 26, () => new Error('too long'))) {
          const { answer, error } = JSON.parse(line) as AskLine;
          if (error) throw faultOf(error);
          yield responseType.fromPartial(answer ?? {});
        }
      } catch (error) {
        throw signal?.aborted ? signal.reason : error;
      }
    };
    const one = async (...asked: Parameters<typeof many>) => {
      for await (const answer of many(...asked)) return answer;
      throw new ClientError(name, Status.UNAVAILABLE, 'the answer is empty');
    };
    return [key, responseStream ? many : one];
  });
  return { admin: Object.fromEntries(methods) as adminApi.AdminClient, [Symbol.dispose]: () => agent.destroy() };
}

/** In JSON, a message says by the field alone what it is about. */
function jsonOf(message: object): object {
  const fields = Object.entries(message).map(([name, value]) =>
    typeof value === 'object' && value !== null && '$case' in value ? [value.$case, value.value] : [name, value],
  );
  return Object.fromEntries(fields);
}

/**
 * Returns a gRPC client of the admin port at `host:port`, or on a unix socket at `unix:/path`, as a program of the plane's operators has it.
 * Without TLS settings, and on unix sockets, it uses plain text.
 */
export function grpcClient(address: string, tls?: AdminClientTls): AdminConnection {
  const path = socketPathOf(address);
  const credentials = tls && path === undefined ? credentialsFor(address, tls) : undefined;
  const channel = createChannel(path === undefined ? address : `unix://${path}`, credentials, {
    'grpc.max_receive_message_length': 64 * 1024 * 1024,
    // grpc-js uses http_proxy even for loopback. Admin ports are reached directly.
    'grpc.enable_http_proxy': 0,
    // An address is no server name (RFC 6066 section 3), and Node refuses it.
    ...(credentials &&
      isIP(parseDestination(address).host) !== 0 && { 'grpc.ssl_target_name_override': ADMIN_SERVER_NAME }),
  });
  const admin = createClient(adminApi.AdminDefinition, channel);
  return { admin, [Symbol.dispose]: () => channel.close() };
}

function credentialsFor(address: string, { ca, cert, key }: AdminClientTls): ChannelCredentials {
  return ChannelCredentials.createSsl(ca, key ?? null, cert ?? null, { checkServerIdentity: checkFor(address) });
}

function checkFor(address: string) {
  const names = [parseDestination(address).host, ADMIN_SERVER_NAME];
  return (_host: string, { raw }: { readonly raw: Buffer }) => {
    const certificate = certificateOf(raw);
    return names.some((name) => isFor(certificate, name))
      ? undefined
      : new Error(`it does not name ${names.join(' or ')}`);
  };
}
