/** The actions on the rows of tables, for those who may. Pure; the server decides. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Kernel, NodeRow, Status, WorkloadView } from '../schema';
import { Act, actionWords, possibleActions } from '../views/actions';

export type NodeAction = 'cordon' | 'uncordon' | 'drain';

/** Carries actions out, after a question where something is lost. Never rejects. */
export interface ITableActions {
  act(kernelId: string, action: Act): void;
  end(workload: WorkloadView): void;
  node(name: string, action: NodeAction): void;
}

export interface IRowAction {
  readonly id: string;
  readonly label: string;
  readonly hint: string;
  readonly run: () => void;
}

/** My notebook has the actions of the sidebar; anything else that I may end can be ended. */
export function workloadActions(
  workload: WorkloadView,
  mine: Kernel | null,
  status: Status | null,
  actions: ITableActions,
  trans: TranslationBundle
): IRowAction[] {
  if (mine !== null) {
    return possibleActions(mine).map(action => ({
      id: action,
      ...actionWords(action, mine, trans),
      run: () => actions.act(mine.kernel_id, action)
    }));
  }
  const mayEnd = status !== null && (status.admin || workload.user === status.user);
  return mayEnd && workload.state !== 'ended'
    ? [
        {
          id: 'end',
          label: trans.__('End'),
          hint: trans.__('End the workload and release its GPUs'),
          run: () => actions.end(workload)
        }
      ]
    : [];
}

/** For administrators. */
export function nodeActions(
  node: NodeRow,
  status: Status | null,
  actions: ITableActions,
  trans: TranslationBundle
): IRowAction[] {
  if (status?.admin !== true) {
    return [];
  }
  const of = (id: NodeAction, label: string, hint: string): IRowAction => ({
    id,
    label,
    hint,
    run: () => actions.node(node.name, id)
  });
  return [
    node.cordoned
      ? of('uncordon', trans.__('Uncordon'), trans.__('Accept new workloads again'))
      : of('cordon', trans.__('Cordon'), trans.__('Place no new workloads on this node')),
    of('drain', trans.__('Drain…'), trans.__('Cordon the node and evict its workloads'))
  ];
}

/** My kernel of a workload; null: it is not a notebook of this server. */
export function kernelOfWorkload(workload: WorkloadView, status: Status | null): Kernel | null {
  return (
    status?.kernels.find(
      kernel => kernel.kernel_id === workload.kernel_id && kernel.workload === workload.id
    ) ?? null
  );
}
