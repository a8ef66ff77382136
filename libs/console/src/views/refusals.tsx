import { age, clock } from '../model/text.ts';
import { Name } from '../parts/name.tsx';
import { Table } from '../parts/table.tsx';
import type { Refusal } from '../rpc/messages.ts';

export interface RefusedAt {
  readonly member: string;
  readonly refusal: Refusal;
}

const COLUMNS = [
  { name: 'From' },
  { name: 'At' },
  { name: 'Port for' },
  { name: 'Reason' },
  { name: 'Times', right: true },
  { name: 'First' },
  { name: 'Last' },
];

/** Connections of agents and callers that were turned away, with the reasons. */
export function Refusals({ refusals, now }: { readonly refusals: readonly RefusedAt[]; readonly now: number }) {
  const rows = refusals.map(({ member, refusal }) => {
    const { where, remote, reason, count, firstMs, lastMs } = refusal;
    return {
      key: `${member} ${where} ${remote} ${reason}`,
      bad: true,
      cells: [
        <Name key="remote" text={remote} />,
        <Name key="member" text={member} />,
        <Name key="where" text={where} />,
        <Name key="reason" text={reason} most={300} />,
        count.toLocaleString('en'),
        clock(firstMs),
        `${age(now - lastMs)} ago`,
      ],
    };
  });
  return <Table title="Refused connections" columns={COLUMNS} rows={rows} none="None." />;
}
