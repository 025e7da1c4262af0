/** My projects: quota, fair share, allocated and over quota. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { gpuNumber, gpuText } from '../format';
import { problemText } from '../messages';
import { ProjectRow } from '../schema';
import { ITable } from '../state';

interface IProjectsProps {
  projects: ITable<ProjectRow>;
  /** Names in display order; other projects follow. */
  order: readonly string[];
  /** Show only this project. */
  only?: string;
  trans: TranslationBundle;
}

export function Projects({ projects, order, only, trans }: IProjectsProps): JSX.Element {
  const place = (row: ProjectRow) =>
    order.includes(row.name) ? order.indexOf(row.name) : order.length;
  const mine = (
    projects.rows?.filter(row => row.member && (only === undefined || row.name === only)) ?? []
  ).sort((a, b) => place(a) - place(b));
  return (
    <>
      {projects.problem !== null && (
        <p className="jp-GpuShare-warning" role="status">
          {projects.rows === null
            ? problemText(projects.problem, trans)
            : trans.__(
                '%1 The numbers below may be outdated.',
                problemText(projects.problem, trans)
              )}
        </p>
      )}
      {projects.rows === null && projects.problem === null && (
        <p className="jp-GpuShare-faint">{trans.__('Loading…')}</p>
      )}
      {projects.rows !== null && mine.length === 0 && (
        <p className="jp-GpuShare-faint">
          {trans.__(
            'You are not a member of any project. Administrators add members in the policy.'
          )}
        </p>
      )}
      {mine.map(row => (
        <Project
          key={`${row.name} ${row.pool}`}
          row={row}
          samePool={samePool(mine)}
          trans={trans}
        />
      ))}
    </>
  );
}

function samePool(rows: readonly ProjectRow[]): boolean {
  return rows.every(row => row.pool === rows[0].pool);
}

interface IProjectProps {
  row: ProjectRow;
  /** With one node pool, its name is omitted. */
  samePool: boolean;
  trans: TranslationBundle;
}

function Project({ row, samePool, trans }: IProjectProps): JSX.Element {
  const over = overQuota(row);
  return (
    <div className="jp-GpuShare-project" data-project={row.name}>
      <div className="jp-GpuShare-project-head">
        <span className="jp-GpuShare-project-name">
          {samePool ? row.name : `${row.name} · ${row.pool}`}
        </span>
        <span className="jp-GpuShare-faint">
          {trans.__('%1 allocated', gpuText(row.gpu_allocated))}
        </span>
      </div>
      <ShareBar row={row} text={explanation(row, trans)} trans={trans} />
      <div className="jp-GpuShare-small">
        <span className="jp-GpuShare-tick jp-mod-quota">
          {trans.__('quota %1', amount(row.gpu_quota, trans))}
        </span>
        <span className="jp-GpuShare-tick jp-mod-fair">
          {trans.__('fair share %1', gpuNumber(row.gpu_fair_share))}
        </span>
        {over > 0 && (
          <span className="jp-GpuShare-tick jp-mod-over">
            {trans.__('%1 over quota', gpuNumber(over))}
          </span>
        )}
        {row.gpu_requested > row.gpu_allocated && (
          <span>
            {trans.__('%1 more requested', gpuNumber(row.gpu_requested - row.gpu_allocated))}
          </span>
        )}
      </div>
    </div>
  );
}

/** GPUs allocated beyond the quota; 0 for an unlimited quota. */
export function overQuota(row: ProjectRow): number {
  return row.gpu_quota === null ? 0 : Math.max(0, row.gpu_allocated - row.gpu_quota);
}

function amount(gpu: number | null, trans: TranslationBundle): string {
  return gpu === null ? trans.__('unlimited') : gpuNumber(gpu);
}

/** The bar in words: its tooltip and accessible value. */
export function explanation(row: ProjectRow, trans: TranslationBundle): string {
  const over = overQuota(row);
  const parts = [
    trans.__(
      'Project %1 in node pool %2: %3 allocated.',
      row.name,
      row.pool,
      gpuText(row.gpu_allocated)
    ),
    row.gpu_quota === null
      ? trans.__('Quota: unlimited.')
      : trans.__('Quota: %1, which other projects cannot reclaim.', gpuText(row.gpu_quota)),
    over > 0 ? trans.__('%1 over quota: may be reclaimed for other projects.', gpuText(over)) : '',
    row.gpu_requested === 0
      ? trans.__('Fair share: 0, because the project requests nothing.')
      : trans.__('Fair share: %1.', gpuText(row.gpu_fair_share)),
    row.gpu_limit === null ? '' : trans.__('Limit: %1.', gpuText(row.gpu_limit))
  ];
  return parts.filter(part => part !== '').join(' ');
}

interface IShareBarProps {
  row: ProjectRow;
  text: string;
  trans: TranslationBundle;
}

/** Allocated GPUs: filled within quota, striped over quota; marks at quota and fair share. */
function ShareBar({ row, text, trans }: IShareBarProps): JSX.Element {
  const scale = Math.max(
    row.gpu_quota ?? 0,
    row.gpu_fair_share,
    row.gpu_allocated,
    row.gpu_requested,
    1
  );
  const percent = (gpu: number) => `${(100 * gpu) / scale}%`;
  const over = overQuota(row);
  const within = row.gpu_allocated - over;
  return (
    <div
      className="jp-GpuShare-bar jp-mod-project"
      role="meter"
      aria-label={trans.__('GPUs of project %1', row.name)}
      aria-valuemin={0}
      aria-valuemax={scale}
      aria-valuenow={row.gpu_allocated}
      aria-valuetext={text}
      title={text}
    >
      <div className="jp-GpuShare-bar-used" style={{ width: percent(within) }} />
      <div
        className="jp-GpuShare-bar-borrowed"
        style={{ left: percent(within), width: percent(over) }}
      />
      <div className="jp-GpuShare-mark jp-mod-fair" style={{ left: percent(row.gpu_fair_share) }} />
      {row.gpu_quota !== null && (
        <div className="jp-GpuShare-mark jp-mod-quota" style={{ left: percent(row.gpu_quota) }} />
      )}
    </div>
  );
}
