import { endText } from '@isthmus/findings/result';
import { renewalIsDue } from '@isthmus/runtime';
import type { CertificatePlace, PlaneEvents } from '@isthmus/tunnel';
import type { Notice } from '../backend.ts';

const PLACES: Readonly<Record<CertificatePlace, string>> = {
  callers: 'at the port for callers',
  agents: 'at the port for agents',
  peers: 'for other gateways and hubs',
  admin: 'at the admin port',
  uplink: 'for servers',
  redis: 'for Redis',
};

interface InUse {
  readonly validUntil: number;
  readonly name: string;
  /** Unknown of some. */
  readonly validFrom?: number;
}

/** The certificates that a process uses, for notices before one expires, and of files that cannot be used as they are. */
export class CertificateEnds {
  readonly #inUse = new Map<CertificatePlace, InUse>();
  /** What is wrong with files now, by place and files. */
  readonly #faults = new Map<string, string>();

  constructor(events: PlaneEvents) {
    events.on('certificate', (where, validUntil, about) => {
      this.#inUse.set(where, { validUntil, name: about?.name ?? '', ...(about && { validFrom: about.validFrom }) });
    });
    events.on('certificate:failure', (where, files, error) => {
      const key = `${where} ${files}`;
      if (error) this.#faults.set(key, `credential files ${PLACES[where]}: ${error.message}`);
      else this.#faults.delete(key);
    });
  }

  /** Returns one notice for each certificate that has expired or will do so soon, and for each fault of files. */
  notices(now = Date.now()): Notice[] {
    const todo = 'mend or replace what it names: until then, what was in force before stays';
    const faults = [...new Set(this.#faults.values())].map(
      (text) => ({ kind: 'certificate_fault', text, todo }) as const,
    );
    return [...faults, ...this.#ends(now)];
  }

  #ends(now: number): Notice[] {
    return [...this.#inUse]
      .filter(([, { validUntil, validFrom }]) => renewalIsDue(validUntil, validFrom, now))
      .map(([where, { validUntil, name }]) => {
        const whose = `certificate ${name === '' ? '' : `${name} `}${PLACES[where]}`;
        const kind = validUntil < now ? 'certificate_expired' : 'certificate_expires';
        return { kind, text: `${whose} ${endText(validUntil, now)}`, todo: 'renew its files in place' };
      });
  }
}
