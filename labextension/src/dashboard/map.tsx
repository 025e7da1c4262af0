/** Node pools, nodes and GPUs with their tenants, memory and health. */
import { TranslationBundle } from '@jupyterlab/translation';
import { useVirtualizer } from '@tanstack/react-virtual';
import * as React from 'react';

import { gpuName, memoryText, percentText, shareText } from '../format';
import { DeviceRow, NodeRow } from '../schema';
import { INodePlacement, ITenant, IGpuPlacement, IPoolPlacement } from './placement';

interface IMapProps {
  pools: readonly IPoolPlacement[];
  trans: TranslationBundle;
}

type Row = { readonly pool: IPoolPlacement; readonly node: INodePlacement | null };

const ROW_PX = 150;
const AHEAD = 4;

export function Map({ pools, trans }: IMapProps): JSX.Element {
  const scroller = React.useRef<HTMLDivElement>(null);
  const rows = React.useMemo(
    () =>
      pools.flatMap(
        pool => [{ pool, node: null }, ...pool.nodes.map(node => ({ pool, node }))] as Row[]
      ),
    [pools]
  );
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: index => (rows[index].node === null ? 40 : ROW_PX),
    overscan: AHEAD,
    getItemKey: index => `${rows[index].pool.name} ${rows[index].node?.node.name ?? ''}`
  });
  const items = virtual.getVirtualItems();
  const label = trans.__('Map of node pools, nodes and GPUs');
  return (
    <div
      className="jp-GpuShareDashboard-scroll"
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <Key trans={trans} />
      <div
        style={{ height: virtual.getTotalSize(), position: 'relative' }}
        role="list"
        aria-label={label}
      >
        {items.map(item => {
          const { pool, node } = rows[item.index];
          return (
            <div
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              className="jp-GpuShareDashboard-place"
              style={{ transform: `translateY(${item.start - virtual.options.scrollMargin}px)` }}
              role="listitem"
            >
              {node === null ? (
                <PoolHead pool={pool} trans={trans} />
              ) : (
                <Node node={node} trans={trans} />
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Key({ trans }: { trans: TranslationBundle }): JSX.Element {
  return (
    <ul className="jp-GpuShareDashboard-key" aria-hidden="true">
      <li data-part="used">{trans.__('used within the guarantee')}</li>
      <li data-part="borrowed">{trans.__('borrowed')}</li>
      <li data-part="foreign">{trans.__('other processes')}</li>
      <li data-part="guaranteed">{trans.__('guaranteed')}</li>
    </ul>
  );
}

function PoolHead({
  pool,
  trans
}: {
  pool: IPoolPlacement;
  trans: TranslationBundle;
}): JSX.Element {
  const row = pool.pool;
  const facts =
    row === null
      ? []
      : [
          ...(row.nodes === 0
            ? []
            : [
                row.status,
                trans._n('%1 node', '%1 nodes', row.nodes),
                trans.__('%1 of %2 GPUs allocated', Number(row.gpu_allocated.toFixed(3)), row.gpus)
              ]),
          row.pending > 0
            ? trans._n('%1 workload waiting', '%1 workloads waiting', row.pending)
            : '',
          ...row.reasons
        ];
  return (
    <h3 className="jp-GpuShareDashboard-pool">
      {trans.__('Node pool %1', pool.name)}{' '}
      <small>{facts.filter(fact => fact !== '').join(' · ')}</small>
    </h3>
  );
}

const Node = React.memo(function Node({
  node: { node, places },
  trans
}: {
  node: INodePlacement;
  trans: TranslationBundle;
}): JSX.Element {
  const words = [...(node.cordoned ? [trans.__('cordoned')] : []), ...node.reasons];
  return (
    <section className="jp-GpuShareDashboard-node" aria-label={trans.__('Node %1', node.name)}>
      <header>
        <h4>{node.name}</h4>
        <span className="jp-GpuShareDashboard-word" data-good={node.status === 'Ready'}>
          {node.status}
        </span>
        {node.simulated && <span className="jp-GpuShare-simulated">{trans.__('simulated')}</span>}
        <span className="jp-GpuShare-faint">
          {[
            ...words,
            node.tiers.length > 0 ? trans.__('capabilities: %1', node.tiers.join(', ')) : '',
            node.driver === '' ? '' : trans.__('driver %1', node.driver)
          ]
            .filter(Boolean)
            .join(' · ')}
        </span>
      </header>
      <Host node={node} trans={trans} />
      <Cannot problems={node.tier_problems} trans={trans} />
      {places.length === 0 ? (
        <p className="jp-GpuShare-faint">{trans.__('No GPUs.')}</p>
      ) : (
        <ul className="jp-GpuShareDashboard-gpus">
          {places.map(place => (
            <Gpu key={place.device.uuid} place={place} trans={trans} />
          ))}
        </ul>
      )}
    </section>
  );
});

/** CPU and memory of the machine, and what saved GPU memory uses of it. */
function Host({ node, trans }: { node: NodeRow; trans: TranslationBundle }): JSX.Element | null {
  const { host_cpu, host_memory_mib, host_used_mib, saved_mib, saved_left_mib } = node;
  const facts = [
    host_cpu == null ? '' : trans.__('CPU %1', percentText(host_cpu)),
    host_used_mib == null || host_memory_mib == null
      ? ''
      : trans.__('host memory %1 of %2', memoryText(host_used_mib), memoryText(host_memory_mib)),
    saved_mib > 0 || saved_left_mib != null
      ? trans.__('saved GPU memory %1', memoryText(saved_mib ?? 0))
      : '',
    saved_left_mib == null ? '' : trans.__('%1 left for it', memoryText(saved_left_mib))
  ].filter(fact => fact !== '');
  return facts.length === 0 ? null : (
    <p className="jp-GpuShare-faint jp-GpuShareDashboard-host">{facts.join(' · ')}</p>
  );
}

/** The capability tiers that the node's self-test did not find, and why. */
function Cannot({
  problems,
  trans
}: {
  problems: NodeRow['tier_problems'];
  trans: TranslationBundle;
}): JSX.Element | null {
  const tiers = Object.keys(problems).filter(tier => problems[tier] !== '');
  return tiers.length === 0 ? null : (
    <details className="jp-GpuShareDashboard-cannot">
      <summary>{trans.__('unavailable: %1', tiers.join(', '))}</summary>
      <ul>
        {tiers.map(tier => (
          <li key={tier}>
            {tier}: {problems[tier]}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Gpu({ place, trans }: { place: IGpuPlacement; trans: TranslationBundle }): JSX.Element {
  const { device, here, plannedHere } = place;
  return (
    <li className="jp-GpuShareDashboard-gpu" data-healthy={device.healthy} data-uuid={device.uuid}>
      <div className="jp-GpuShareDashboard-gpu-head">
        <strong title={device.uuid}>{trans.__('GPU %1', gpuName(device.uuid))}</strong>{' '}
        <span className="jp-GpuShare-faint">{device.model}</span>
      </div>
      {!device.healthy && (
        <div className="jp-GpuShare-refusal">
          {device.health !== '' ? trans.__('Unhealthy: %1', device.health) : trans.__('Unhealthy')}
        </div>
      )}
      <Bar device={device} trans={trans} />
      {here.length === 0 && plannedHere.length === 0 && (
        <div className="jp-GpuShare-faint jp-GpuShareDashboard-who">
          {trans.__('No workloads.')}
        </div>
      )}
      <ul className="jp-GpuShareDashboard-who">
        {here.map(one => (
          <li key={one.key} data-kind="runs">
            {hereText(one, trans)}
          </li>
        ))}
        {plannedHere.map(one => (
          <li key={one.key} data-kind="planned">
            {trans.__('planned here: %1', whoText(one, trans))}
          </li>
        ))}
      </ul>
    </li>
  );
}

function Bar({ device, trans }: { device: DeviceRow; trans: TranslationBundle }): JSX.Element {
  const { total, used, borrowed, guaranteed } = device.memory_mib;
  const scale = Math.max(total, used + device.foreign_mib, guaranteed, 1);
  const percent = (mib: number) => `${(100 * mib) / scale}%`;
  const text = barText(device, trans);
  return (
    <>
      <div
        className="jp-GpuShareDashboard-bar"
        role="meter"
        aria-label={trans.__('GPU memory')}
        aria-valuemin={0}
        aria-valuemax={scale}
        aria-valuenow={Math.min(scale, used + device.foreign_mib)}
        aria-valuetext={text}
      >
        <div data-part="used" style={{ width: percent(used - borrowed) }} />
        <div data-part="borrowed" style={{ width: percent(borrowed) }} />
        <div data-part="foreign" style={{ width: percent(device.foreign_mib) }} />
        {guaranteed > 0 && <div data-part="guaranteed" style={{ left: percent(guaranteed) }} />}
      </div>
      <div className="jp-GpuShare-memory-text">{text}</div>
    </>
  );
}

function barText(device: DeviceRow, trans: TranslationBundle): string {
  const { total, used, borrowed, guaranteed } = device.memory_mib;
  const processes = device.foreign_processes;
  return [
    trans.__('%1 of %2 used', memoryText(used), memoryText(total)),
    guaranteed > 0 ? trans.__('%1 guaranteed', memoryText(guaranteed)) : '',
    borrowed > 0 ? trans.__('%1 borrowed', memoryText(borrowed)) : '',
    device.foreign_mib > 0
      ? trans._n(
          '%2 used by %1 other process',
          '%2 used by %1 other processes',
          processes,
          memoryText(device.foreign_mib)
        )
      : '',
    device.utilization === null
      ? ''
      : trans.__('utilization %1\u00a0%', Math.round(100 * device.utilization)),
    device.temperature_c == null ? '' : `${device.temperature_c}\u00a0°C`, // == null: older servers
    device.power_w == null ? '' : `${device.power_w}\u00a0W`
  ]
    .filter(part => part !== '')
    .join(' · ');
}

function whoText(one: ITenant, trans: TranslationBundle): string {
  const name =
    one.name ??
    (one.project === null
      ? trans.__('another user')
      : trans.__('another user in project %1', one.project));
  const share = shareText({ gpu: one.gpu, gpu_memory_mib: null });
  return share === null ? name : `${name} (${share})`;
}

function hereText(one: ITenant, trans: TranslationBundle): string {
  return [
    whoText(one, trans),
    one.user ?? '',
    one.state === 'suspended' ? trans.__('suspended') : '',
    one.usedMib === null ? '' : memoryText(one.usedMib),
    one.borrowedMib > 0 ? trans.__('%1 borrowed', memoryText(one.borrowedMib)) : ''
  ]
    .filter(part => part !== '')
    .join(' · ');
}
