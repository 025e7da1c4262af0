/** The queues as a tree. Pure. */
import { ProjectRow, QueueRow } from '../schema';

export interface IQueueNode extends QueueRow {
  readonly children: readonly IQueueNode[];
}

/** Departments with their projects, per node pool and resource. Other projects are top-level. */
export function queueTree(
  queues: readonly QueueRow[],
  projects: readonly ProjectRow[]
): IQueueNode[] {
  const departmentOf = new Map(projects.map(project => [project.name, project.department]));
  const parents = new Set(
    queues.filter(queue => queue.kind === 'department').map(queue => placeOf(queue, queue.queue))
  );
  const children = new Map<string, IQueueNode[]>();
  const top: QueueRow[] = [];
  for (const queue of queues) {
    const parent = queue.kind === 'project' ? (departmentOf.get(queue.queue) ?? null) : null;
    const place = parent === null ? null : placeOf(queue, parent);
    if (place !== null && parents.has(place)) {
      children.set(place, [...(children.get(place) ?? []), { ...queue, children: [] }]);
    } else {
      top.push(queue);
    }
  }
  return top.map(queue => ({
    ...queue,
    children: children.get(placeOf(queue, queue.queue)) ?? []
  }));
}

function placeOf(queue: QueueRow, name: string): string {
  return `${queue.pool} ${queue.resource} ${name}`;
}
