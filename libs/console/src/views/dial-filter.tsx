import { Role } from '@isthmus/proto/admin-enums';
import type { Watched } from '../rpc/messages.ts';

/** What an operator types; each is empty for all. */
export interface Filter {
  readonly tenant: string;
  readonly destination: string;
  /** Part of its id. */
  readonly agent: string;
  readonly gateway: string;
  readonly failed: boolean;
  /** In milliseconds. */
  readonly slower: string;
}

export const NO_FILTER: Filter = { tenant: '', destination: '', agent: '', gateway: '', failed: false, slower: '' };

/** Returns what members are asked for: they leave out the rest, so that rare dials are not lost among many. */
export function watchedOf({ tenant, destination, failed, slower }: Filter): Watched {
  const slowerThanMs = Number(slower);
  return {
    role: Role.ROLE_GATEWAY,
    ...(tenant.trim() !== '' && { tenant: tenant.trim() }),
    ...(destination.trim() !== '' && { destination: destination.trim() }),
    ...(failed && { onlyFailed: true }),
    ...(slowerThanMs > 0 && { slowerThanMs }),
  };
}

export function DialFilter({
  filter,
  gateways,
  change,
}: {
  readonly filter: Filter;
  readonly gateways: readonly string[];
  readonly change: (filter: Filter) => void;
}) {
  const text = (name: 'tenant' | 'destination' | 'agent') => ({
    value: filter[name],
    onChange: ({ currentTarget }: { readonly currentTarget: HTMLInputElement }) =>
      change({ ...filter, [name]: currentTarget.value }),
  });
  return (
    <form class="filter" onSubmit={(event) => event.preventDefault()}>
      <label>
        Tenant <input {...text('tenant')} />
      </label>
      <label>
        Destination <input {...text('destination')} placeholder="host or host:port" />
      </label>
      <label>
        Agent <input {...text('agent')} />
      </label>
      <label>
        Gateway{' '}
        <select
          value={filter.gateway}
          onChange={({ currentTarget }) => change({ ...filter, gateway: currentTarget.value })}
        >
          <option value="">all</option>
          {gateways.map((id) => (
            <option key={id}>{id}</option>
          ))}
        </select>
      </label>
      <label>
        Slower than, ms{' '}
        <input
          type="number"
          min="0"
          value={filter.slower}
          onChange={({ currentTarget }) => change({ ...filter, slower: currentTarget.value })}
        />
      </label>
      <label>
        <input type="checkbox" checked={filter.failed} onChange={() => change({ ...filter, failed: !filter.failed })} />{' '}
        failed only
      </label>
    </form>
  );
}
