/** The projects that I am in: quota, fair share, what is held and what of that is over quota, as one bar that explains itself. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { gpuNumber, gpuText } from '../format';
import { problemText } from '../messages';
import { ProjectRow } from '../schema';
import { ITable } from '../state';

interface IProjectsProps {
  projects: ITable<ProjectRow>;
  /** Names in the order in which they are shown; the rest comes after them. */
  order: readonly string[];
  /** Only this one, when it is given. */
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
            : trans.__('%1 What stands here is from before.', problemText(projects.problem, trans))}
        </p>
      )}
      {projects.rows === null && projects.problem === null && (
        <p className="jp-GpuShare-faint">{trans.__('Asking the server…')}</p>
      )}
      {projects.rows !== null && mine.length === 0 && (
        <p className="jp-GpuShare-faint">
          {trans.__(
            'I am in no project. An administrator adds people to projects in the policy file.'
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
  /** One pool for all needs no mention. */
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
        <span className="jp-GpuShare-faint">{trans.__('%1 held', gpuText(row.gpu_allocated))}</span>
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
            {trans.__('%1 more wanted', gpuNumber(row.gpu_requested - row.gpu_allocated))}
          </span>
        )}
      </div>
    </div>
  );
}

/** GPUs held beyond what the project deserves; unlimited quota is never exceeded. */
export function overQuota(row: ProjectRow): number {
  return row.gpu_quota === null ? 0 : Math.max(0, row.gpu_allocated - row.gpu_quota);
}

function amount(gpu: number | null, trans: TranslationBundle): string {
  return gpu === null ? trans.__('unlimited') : gpuNumber(gpu);
}

/** The bar in sentences: its tooltip, and what a screen reader says. */
export function explanation(row: ProjectRow, trans: TranslationBundle): string {
  const over = overQuota(row);
  const parts = [
    trans.__('Project %1 in pool %2 holds %3.', row.name, row.pool, gpuText(row.gpu_allocated)),
    row.gpu_quota === null
      ? trans.__('Its quota is unlimited.')
      : trans.__('Its quota, which no other project takes back, is %1.', gpuText(row.gpu_quota)),
    over > 0
      ? trans.__(
          '%1 is over quota: borrowed, until a project with a right to it asks.',
          gpuText(over)
        )
      : '',
    row.gpu_requested === 0
      ? trans.__('It asks for nothing, so its fair share of the pool is 0 now.')
      : trans.__('Its fair share of the pool is now %1.', gpuText(row.gpu_fair_share)),
    row.gpu_limit === null
      ? ''
      : trans.__('It may never hold more than %1.', gpuText(row.gpu_limit))
  ];
  return parts.filter(part => part !== '').join(' ');
}

interface IShareBarProps {
  row: ProjectRow;
  text: string;
  trans: TranslationBundle;
}

/** What is held within quota is pathWith, what is over it is striped; two marks stand at quota and fair share. */
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
