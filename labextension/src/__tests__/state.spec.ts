import { StreamFrame } from '../schema';
import { Fact, INITIAL, IState, news, reduce } from '../state';
import { event, kernel, status } from './fixtures';

const after = (...facts: Fact[]): IState => facts.reduce(reduce, INITIAL);
const frame = (value: StreamFrame): Fact => ({ type: 'frame', frame: value });
const full = (revision: number, ...kernels: ReturnType<typeof kernel>[]): Fact =>
  frame({ type: 'state', revision, status: status(...kernels) });
const gone: Fact = { type: 'disconnected', at: 7, problem: 'no answer' };

describe('the connection state', () => {
  const cases: [string, Fact[], IState['connection']][] = [
    ['without data', [], 'loading'],
    ['a snapshot is live', [{ type: 'snapshot', status: status() }], 'live'],
    ['a server that never responded has failed', [gone], 'failed'],
    ['a lost server leaves stale data', [full(1), gone], 'stale'],
    ['a full state makes stale data live', [full(1), gone, full(2)], 'live'],
    [
      'a change makes stale data live',
      [full(1), gone, frame({ type: 'kernel_gone', revision: 2, kernel_id: 'k9' })],
      'live'
    ]
  ];
  test.each(cases)('%s', (_, facts, expected) => {
    expect(after(...facts).connection).toBe(expected);
  });

  test('is stale since the connection was lost, not since the last attempt', () => {
    expect(after(full(1), gone, { ...gone, at: 99 }).staleSince).toBe(7);
  });
});

describe('frames', () => {
  test('a kernel frame replaces that kernel only, in its place', () => {
    const state = after(
      full(1, kernel(), kernel({ kernel_id: 'k2' })),
      frame({
        type: 'kernel',
        revision: 2,
        kernel_id: 'k1',
        kernel: kernel({ state: 'suspended' })
      })
    );
    expect(state.status?.kernels.map(k => [k.kernel_id, k.state])).toEqual([
      ['k1', 'suspended'],
      ['k2', 'attached']
    ]);
  });

  test('an unknown kernel is appended', () => {
    const state = after(
      full(1),
      frame({ type: 'kernel', revision: 2, kernel_id: 'k1', kernel: kernel() })
    );
    expect(state.status?.kernels).toHaveLength(1);
  });

  test('an outdated frame changes nothing', () => {
    const before = after(full(5, kernel()));
    expect(reduce(before, frame({ type: 'kernel_gone', revision: 5, kernel_id: 'k1' }))).toBe(
      before
    );
  });

  test('a full state counts even with a smaller revision: the server restarted', () => {
    expect(after(full(50, kernel()), full(1)).status?.kernels).toEqual([]);
  });

  test('an unknown frame is ignored', () => {
    const before = after(full(1));
    expect(reduce(before, frame({ type: 'weather', revision: 2 } as unknown as StreamFrame))).toBe(
      before
    );
  });

  test('a known event is not added twice', () => {
    const known = event('moved', 'to GPU 1');
    const state = after(
      full(1, kernel({ events: [known] })),
      frame({ type: 'event', revision: 2, kernel_id: 'k1', event: { ...known } })
    );
    expect(state.status?.kernels[0].events).toHaveLength(1);
  });

  test('a status frame keeps the kernels', () => {
    const state = after(
      full(1, kernel()),
      frame({ type: 'status', revision: 2, status: { ...status(), simulated: false } })
    );
    expect(state.status?.simulated).toBe(false);
    expect(state.status?.kernels).toHaveLength(1);
  });
});

describe('pending actions', () => {
  const asked: Fact = { type: 'asked', kernelId: 'k1', action: 'suspend' };
  const refusal = { message: 'no such project', field: 'project' };

  test('end with the response', () => {
    expect(after(full(1, kernel()), asked, { type: 'answered', kernelId: 'k1' }).asked).toEqual({});
  });

  test('keep their error until it is dismissed or another action starts', () => {
    const refused = after(full(1, kernel()), asked, {
      type: 'refused',
      kernelId: 'k1',
      action: 'suspend',
      refusal
    });
    expect(refused.asked.k1.refusal).toEqual(refusal);
    expect(reduce(refused, { type: 'dismissed', kernelId: 'k1' }).asked).toEqual({});
    expect(reduce(refused, asked).asked.k1.refusal).toBeNull();
  });

  test('end with their kernel', () => {
    expect(
      after(full(1, kernel()), asked, frame({ type: 'kernel_gone', revision: 2, kernel_id: 'k1' }))
        .asked
    ).toEqual({});
  });
});

describe('new events', () => {
  const moved = event('moved', 'to GPU 1', 1);
  const killed = event('killed', 'no host memory left', 2);

  test('do not include the past of a kernel that was not known', () => {
    expect(news(INITIAL, after(full(1, kernel({ events: [moved] }))))).toEqual([]);
  });

  test('include events during a lost connection, in order, once', () => {
    const before = after(full(1, kernel({ events: [moved] })), gone);
    const back = kernel({ events: [moved, killed, event('reattached', 'on GPU 0', 3)] });
    const later = reduce(before, full(9, back));
    expect(news(before, later).map(item => item.event.kind)).toEqual(['killed', 'reattached']);
    expect(news(later, later)).toEqual([]);
  });

  test('an event frame and a kernel frame with the same event count once', () => {
    const start = after(full(1, kernel()));
    const first = reduce(
      start,
      frame({ type: 'event', revision: 2, kernel_id: 'k1', event: moved })
    );
    const second = reduce(
      first,
      frame({ type: 'kernel', revision: 3, kernel_id: 'k1', kernel: kernel({ events: [moved] }) })
    );
    expect([...news(start, first), ...news(first, second)]).toHaveLength(1);
  });
});
