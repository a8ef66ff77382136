import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { blindness, type Greeting, membersOf } from './member.ts';

const { GetStatusResponse, ListMembersResponse } = adminApi;
const { ROLE_GATEWAY, ROLE_HUB } = adminApi.Role;

const named = (memberId: string, adminAddress: string, host: string, self = false, sinceMs = 0) => {
  return { memberId, adminAddress, host, roles: [ROLE_GATEWAY, ROLE_HUB], self, sinceMs };
};

function greeting(address: string, memberId: string, members: ReturnType<typeof named>[], membersError = ''): Greeting {
  return {
    address,
    status: GetStatusResponse.fromPartial({ memberId, roles: [ROLE_GATEWAY] }),
    list: ListMembersResponse.fromPartial({ members, membersError }),
  };
}

describe('the members of a plane', () => {
  it('are asked where they answered, otherwise at the address that others give', () => {
    const members = [
      named('m1', '10.0.0.1:8095', 'a', true),
      named('m10', '10.0.0.9:8095', 'b'),
      named('m2', '10.0.0.2:8095', 'c'),
    ];
    const found = membersOf([greeting('localhost:9000', 'm1', members)]);
    assert.deepEqual(
      [...found.values()].map(({ id, address, hubId }) => [id, address, hubId]),
      [
        ['m1', 'localhost:9000', ''],
        ['m2', '10.0.0.2:8095', 'm2'],
        ['m10', '10.0.0.9:8095', 'm10'],
      ],
    );
  });

  it('do not include dead ones if another process listens in their place', () => {
    const members = [
      named('m1', '10.0.0.1:8095', 'a', true, 30),
      named('m2', '10.0.0.2:8095', 'b', false, 40),
      ...[named('dead-1', '10.0.0.1:8095', 'a', false, 10), named('dead-2', '10.0.0.2:8095', 'b', false, 20)],
      ...[named('m3', '', 'c', false, 10), named('m4', '', 'c', false, 20)],
    ];
    const found = membersOf([greeting('localhost:9000', 'm1', members)]);
    assert.deepEqual([...found.keys()], ['m1', 'm2', 'm3', 'm4']);
  });

  it('are told apart by address, not by the name of the machine', () => {
    const members = [
      named('dead-1', '10.0.0.1:8095', 'old-name', false, 10),
      named('m1', '10.0.0.1:8095', 'new-name', false, 20),
      named('dead-2', '127.0.0.1:8095', 'here', false, 10),
      named('m2', '127.0.0.1:8095', 'here', false, 20),
      named('m0', '10.0.0.9:8095', 'here', true),
    ];
    const found = membersOf([greeting('10.0.0.9:8095', 'm0', members)]);
    assert.deepEqual([...found.keys()], ['m0', 'm1', 'm2']);
  });

  it('are all listed if their loopback is elsewhere, because two machines may have one name', () => {
    const members = [
      named('m1', '127.0.0.1:8095', 'there', false, 10),
      named('m2', '127.0.0.1:8095', 'there', false, 20),
      named('m3', '127.0.0.1:8095', 'here', false, 30),
    ];
    const found = membersOf([greeting('10.0.0.9:8095', 'm0', members)]);
    assert.deepEqual([...found.keys()], ['m0', 'm1', 'm2', 'm3']);
  });

  it('are not all known while the registry is down, unless someone knows them', () => {
    const blind = greeting('a:1', 'm1', [], 'redis r:6379: connect ECONNREFUSED');
    assert.match(
      blindness([blind])[0]?.reason ?? '',
      /^cannot get the list of other members \(redis r:6379: .*\): name the others with --address$/,
    );
    assert.deepEqual(blindness([blind, greeting('b:1', 'm2', [])]), []);
  });
});
