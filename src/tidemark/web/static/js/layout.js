// Places a job's graph in layers: sources first, each vertex after all of its inputs, few crossings, short edges.
//
// Works on two axes without saying which is which: `along` is the way records flow, `across` the other one. The
// steps are Sugiyama's: layers by longest path, points for edges that pass through layers, order by barycentres,
// and at last positions: each layer as near to its neighbours as its order and the gaps allow.

const SWEEPS = 8;

/**
 * @param {{id: string, inputs: string[]}[]} nodes
 * @param {{along: number, across: number, gapAlong: number, gapAcross: number}} size of a node and of the gaps
 * @returns {{nodes: Map<string, {along: number, across: number}>, edges: {from, to, points}[], along, across}}
 *   left upper corners of the nodes, and for each edge the points it goes through, from border to border
 */
export function layered(nodes, size) {
  const known = new Set(nodes.map((node) => node.id));
  const edges = acyclic(nodes).filter((edge) => known.has(edge.from));
  const layers = withPoints(nodes, edges, longestPaths(nodes, edges));
  orderByBarycentre(layers);
  position(layers, size);
  return measure(layers, edges, size);
}

/** Edges of the graph; one that closes a cycle (an iteration) is turned round, one from a node to itself left out. */
function acyclic(nodes) {
  const outputs = new Map(nodes.map((node) => [node.id, []]));
  const edges = nodes.flatMap((node) => node.inputs.filter((from) => from !== node.id).map((from) => ({ from, to: node.id, back: false })));
  edges.forEach((edge) => outputs.get(edge.from)?.push(edge));
  const state = new Map();
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of outputs.get(id) || []) {
      if (state.get(edge.to) === "open") edge.back = true;
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  nodes.forEach((node) => state.has(node.id) || visit(node.id));
  return edges;
}

function longestPaths(nodes, edges) {
  const before = new Map(nodes.map((node) => [node.id, []]));
  edges.forEach((edge) => (edge.back ? before.get(edge.from)?.push(edge.to) : before.get(edge.to).push(edge.from)));
  const layer = new Map();
  const of = (id) => {
    if (!layer.has(id)) layer.set(id, Math.max(-1, ...before.get(id).map(of)) + 1);
    return layer.get(id);
  };
  nodes.forEach((node) => of(node.id));
  return layer;
}

/** Layers of cells; an edge over several layers becomes a chain of cells without a node. */
function withPoints(nodes, edges, layerOf) {
  const layers = Array.from({ length: Math.max(0, ...layerOf.values()) + 1 }, () => []);
  const cells = new Map();
  for (const node of nodes) {
    const cell = { id: node.id, before: [], after: [] };
    cells.set(node.id, cell);
    layers[layerOf.get(node.id)].push(cell);
  }
  for (const edge of edges) {
    const [first, last] = edge.back ? [edge.to, edge.from] : [edge.from, edge.to];
    let previous = cells.get(first);
    edge.cells = [previous];
    for (let layer = layerOf.get(first) + 1; layer < layerOf.get(last); layer++) {
      const point = { id: null, before: [], after: [] };
      layers[layer].push(point);
      join(previous, point);
      edge.cells.push(point);
      previous = point;
    }
    join(previous, cells.get(last));
    edge.cells.push(cells.get(last));
  }
  return layers;
}

function join(from, to) {
  from.after.push(to);
  to.before.push(from);
}

function orderByBarycentre(layers) {
  const number = (layer) => layer.forEach((cell, i) => (cell.order = i));
  layers.forEach(number);
  const sort = (layer, side) => {
    layer.forEach((cell) => (cell.pull = mean(cell[side].map((other) => other.order)) ?? cell.order));
    layer.sort((a, b) => a.pull - b.pull);
    number(layer);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    if (sweep % 2 === 0) layers.slice(1).forEach((layer) => sort(layer, "before"));
    else layers.slice(0, -1).reverse().forEach((layer) => sort(layer, "after"));
  }
}

const mean = (numbers) => (numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : undefined);

function position(layers, size) {
  const extent = (cell) => (cell.id === null ? 0 : size.across);
  for (const layer of layers) {
    let at = 0;
    layer.forEach((cell) => {
      cell.across = at + extent(cell) / 2;
      at += extent(cell) + size.gapAcross;
    });
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wanted = layer.map((cell) => {
        const near = down ? cell.before : cell.after;
        return mean((near.length ? near : [cell]).map((other) => other.across));
      });
      const offsets = [0];
      for (let i = 1; i < layer.length; i++) {
        offsets.push(offsets[i - 1] + (extent(layer[i - 1]) + extent(layer[i])) / 2 + size.gapAcross);
      }
      const nearest = isotonic(wanted.map((at, i) => at - offsets[i]));
      layer.forEach((cell, i) => (cell.across = nearest[i] + offsets[i]));
    }
  }
}

/** The growing sequence nearest to `values` (pool adjacent violators): keeps order and gaps, moves least. */
function isotonic(values) {
  const pools = [];
  for (const value of values) {
    let pool = { sum: value, size: 1 };
    while (pools.length && pools.at(-1).sum / pools.at(-1).size > pool.sum / pool.size) {
      const last = pools.pop();
      pool = { sum: last.sum + pool.sum, size: last.size + pool.size };
    }
    pools.push(pool);
  }
  return pools.flatMap((pool) => new Array(pool.size).fill(pool.sum / pool.size));
}

function measure(layers, edges, size) {
  const cells = layers.flat();
  const least = Math.min(...cells.map((cell) => cell.across - (cell.id === null ? 0 : size.across / 2)));
  const pitch = size.along + size.gapAlong;
  layers.forEach((layer, i) => layer.forEach((cell) => {
    cell.along = i * pitch;
    cell.across -= least;
  }));
  const placed = new Map();
  for (const cell of cells) {
    if (cell.id !== null) placed.set(cell.id, { along: cell.along, across: cell.across - size.across / 2 });
  }
  return {
    nodes: placed,
    edges: edges.map(({ from, to, back, cells: through }) => ({ from, to, points: border(through, size, back) })),
    along: layers.length * pitch - size.gapAlong,
    across: Math.max(...cells.map((cell) => cell.across + (cell.id === null ? 0 : size.across / 2))),
  };
}

function border(cells, size, back) {
  const points = cells.flatMap((cell, i) => {
    const start = { along: cell.along, across: cell.across };
    const end = { along: cell.along + size.along, across: cell.across };
    if (i === 0) return [end];
    return i === cells.length - 1 ? [start] : [start, end];
  });
  return back ? points.reverse() : points;
}
