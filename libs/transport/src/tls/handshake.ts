import { boundMet } from '@isthmus/runtime';

/** TLS alerts about certificates and versions (RFC 8446 section 6.2), and what their sender means. */
const ALERTS: readonly (readonly [code: number, name: string, means: string])[] = [
  [40, 'handshake_failure', 'it has no version, cipher suite or certificate in common with this side'],
  [42, 'bad_certificate', 'it does not accept the certificate that it was shown'],
  [
    43,
    'unsupported_certificate',
    'the certificate that it was shown is not for this purpose, or not of its authorities',
  ],
  [44, 'certificate_revoked', 'the certificate that it was shown is revoked'],
  [45, 'certificate_expired', 'the certificate that it was shown has expired, or is not valid yet'],
  [46, 'certificate_unknown', 'it does not accept the certificate that it was shown'],
  [48, 'unknown_ca', 'it does not trust the authority of the certificate that it was shown'],
  [49, 'access_denied', 'it does not let this certificate in'],
  [70, 'protocol_version', 'it wants another version of TLS'],
  [116, 'certificate_required', 'it asks for a certificate, and was shown none'],
  [120, 'no_application_protocol', 'it speaks none of the protocols that this side offers: is it the right port?'],
];

/** Returns the other side's TLS alert in words, or undefined if the error is none. OpenSSL gives its number, rustls its name. */
export function alertIn({ message }: Error): string | undefined {
  const number = Number(/alert number (\d+)/.exec(message)?.[1]);
  const word = /received fatal alert: (\w+)/.exec(message)?.[1]?.toLowerCase();
  // Go's words, which arrive through a gRPC library: `remote error: tls: bad certificate`.
  const spoken = /remote error: tls: ([\w ]+)/.exec(message)?.[1]?.replaceAll(' ', '');
  const found = ALERTS.find(([code, name]) => code === number || [word, spoken].includes(name.replaceAll('_', '')));
  return found && `the other side ended the TLS handshake (alert ${found[1]}): ${found[2]}`;
}

/** Returns the error of a failed handshake without OpenSSL's numbers and source files, also if a gRPC library quotes it. */
export function inWords(error: Error): Error {
  const alert = alertIn(error);
  if (alert !== undefined) return new Error(alert, { cause: error });
  const why = boundMet(error) ?? /:SSL routines:[^:]*:([^:]+)/.exec(error.message)?.[1];
  return why === undefined ? error : new Error(`the TLS handshake failed: ${why}`, { cause: error });
}

/**
 * For a server. A peer that does not trust the server's certificate sends an alert, or just closes.
 * @param begun whether the peer had sent anything: before that, it has not seen the certificate
 * @returns undefined if it closed before, or reset its connection: that is how load balancers look whether the port is open. A reset also
 * hides that their handshake was complete
 */
export function handshakeError(error: Error, begun: boolean): Error | undefined {
  const told = inWords(error);
  const { code, syscall } = error as NodeJS.ErrnoException;
  const silent = code === 'ECONNRESET';
  if (silent && (!begun || syscall === 'read')) return undefined;
  if (!silent && !/\b(unknown_ca|bad_certificate|unsupported_certificate|certificate_unknown)\b/.test(told.message))
    return told;
  const what = silent ? 'the peer went away during the TLS handshake' : told.message;
  return new Error(`${what}: does it trust the authority of this certificate?`, { cause: error });
}
