(* Linked files, promise B (one member) under exchange: a member becomes another person in another unit;
   carriers hand over published values, the carrier of the place its unit; and one more member may make
   room. What this keeps, and how far tables of members and of units move. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms LinkedReach.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* The counting argument. A person p and others E change; those of O among the others change their place
   alone. Nobody of E outside O shares a cell with the person, those of O at most before or after; two
   others share a cell at most before or after, two of O never. *)
Lemma star_with_places (I C : finType) (p : I) (E O : {set I}) (f g : I -> C) : p \notin E -> O \subset E ->
  (forall i, i \notin p |: E -> f i = g i) ->
  (forall i, i \in E -> ((f p == f i) + (g p == g i) <= (i \in O))%N) ->
  (forall i j, i \in E -> j \in E -> i != j ->
    ((f i == f j) + (g i == g j) <= ~~ ((i \in O) && (j \in O)))%N) ->
  (l2_squared f g <= (#|E| ^ 2 + #|E| + 2 + 2 * (O != set0))%N%:Z)%R.
Proof.
move=> pE OE same hp hE; apply: le_trans (l2_squared_le same) _; rewrite lez_nat.
pose both i j := (i \in O) && (j \in O).
have other_pairs (i : I) (R : {set I}) : i \in R -> (\sum_(j in R | j != i) 1 = #|R|.-1)%N.
  move=> iR; rewrite sum1_card (eq_card (_ : _ =i R :\ i)); last by move=> j; rewrite !inE andbC.
  by rewrite (cardsD1 i R) iR.
have in_places : (\sum_(i in E) \sum_(j in E | j != i) both i j = #|O| * #|O|.-1)%N.
  rewrite (big_setID O) /= (setIidPr OE) [X in (_ + X)%N]big1 ?addn0; last first.
    by move=> i /setDP[_ /negbTE iO]; apply: big1 => j _; rewrite /both iO.
  rewrite -sum_nat_const; apply: eq_bigr => i iO; rewrite -(other_pairs i O iO).
  rewrite [LHS](bigID (mem O)) /= [X in (_ + X)%N]big1 ?addn0; last first.
    by move=> j /andP[_ /negbTE jO]; rewrite /both jO andbF.
  apply: eq_big => [j|j /andP[_ jO]]; last by rewrite /both iO jO.
  rewrite andbC; case jO : (j \in O) => //=; by rewrite (subsetP OE j jO).
have others : (\sum_(i in E) \sum_(j in E | j != i) ((f i == f j) + (g i == g j))
    + #|O| * #|O|.-1 <= #|E| * #|E|.-1)%N.
  rewrite -in_places -big_split -sum_nat_const /=; apply: leq_sum => i iE.
  rewrite -big_split -(other_pairs i E iE) /=; apply: leq_sum => j /andP[jE ji].
  have := hE i j iE jE; rewrite eq_sym ji -/(both i j) => /(_ isT).
  by case: (both i j); case: (f i == f j); case: (g i == g j).
have person : (\sum_(i in E) ((f p == f i) + (g p == g i)) <= #|O|)%N.
  apply: (@leq_trans (\sum_(i in E) (i \in O))); first by apply: leq_sum => i; apply: hp.
  rewrite (big_setID O) /= (setIidPr OE) [X in (_ + X)%N]big1 ?addn0; last first.
    by move=> i /setDP[_ /negbTE ->].
  by rewrite -sum1_card leq_sum // => i ->.
have -> : (\sum_(i in p |: E) \sum_(j in p |: E) ((f i == f j) + (g i == g j)) =
    2 + 2 * (\sum_(i in E) ((f p == f i) + (g p == g i))) + 2 * #|E|
    + \sum_(i in E) \sum_(j in E | j != i) ((f i == f j) + (g i == g j)))%N.
  rewrite big_setU1 //= big_setU1 //= !eqxx.
  have -> : (2 * #|E| = \sum_(i in E) 2)%N by rewrite sum_nat_const mulnC.
  have -> : (\sum_(i in E) \sum_(j in p |: E) ((f i == f j) + (g i == g j)) =
      (\sum_(i in E) ((f p == f i) + (g p == g i))) + ((\sum_(i in E) 2)
      + \sum_(i in E) \sum_(j in E | j != i) ((f i == f j) + (g i == g j))))%N.
    rewrite -!big_split /=; apply: eq_bigr => i iE; rewrite big_setU1 //= (eq_sym (f i)) (eq_sym (g i)).
    by congr addn; rewrite (bigD1 i) //= !eqxx.
  by lia.
have zero : (O == set0) = (#|O| == 0%N) by rewrite cards_eq0.
rewrite zero; move: person others.
move: (\sum_(i in E) \sum_(j in E | j != i) _)%N (\sum_(i in E) _)%N #|E| #|O| => s r q o hr hs.
have hq : (q * q.-1 + q = q ^ 2)%N by case: (q) => //= k; rewrite -mulnn; lia.
have ho : (2 * o <= o * o.-1 + 2 * (o != 0))%N by case: (o) => [|[|[|k]]] //=; lia.
by lia.
Qed.

Section LinkedExchange.
(* Members, units and published values as in LinkedReach.v. *)
Variables (F B V N H P : finType) (block : F -> B) (node : F -> V -> N) (place : H -> P) (b0 : B).
Variables (lo : nat) (hi : H -> nat) (n : nat).
Local Notation member := (member F V H).
Local Notation published := (published block node place b0).
Local Notation dataset := (dataset member n).
Local Notation same_totals := (@same_totals member B _ published n).
Local Notation carriers := (@carriers member B _ published n).
Local Notation unit_size := (@unit_size F V H n).
Local Notation moves := (@moves F V N node).
Implicit Types (X Y : dataset) (p i j : 'I_n) (y : record F V) (h v : H) (b : B) (f : F).
Implicit Type c : {ffun B -> 'I_n}.

(* The place is handed over if the published places of the old and the new unit differ. Then the carrier
   of block b0 takes the person's whole place, and its own unit is short of a member; otherwise the
   person's old unit is. *)
Definition handed X p v := place (X p).2 != place v.
Definition short_unit X p v c := if handed X p v then (X (c b0)).2 else (X p).2.

(* The person p becomes y in unit v. Carriers take the person's leaves as in Exchange.v. The one who
   makes room, if anybody, goes to the unit that is short. *)
Definition exchange_member X p y v c (maker : option 'I_n) : dataset :=
  [ffun i => if i == p then (y, v) else
    ([ffun f => if moves (X p).1 y f && (c (block f) == i) then (X p).1 f else (X i).1 f],
     if handed X p v && (c b0 == i) then (X p).2
     else if maker == Some i then short_unit X p v c else (X i).2)].

(* Who makes room is a member of the new unit, not the person, and not the carrier of the place. *)
Definition makes_room X p v c (maker : option 'I_n) := forall j, maker = Some j ->
  [/\ j != p, (X j).2 = v & ~~ (handed X p v && (c b0 == j))].

Section OneExchange.
Variables (X : dataset) (p : 'I_n) (y : record F V) (v : H) (c : {ffun B -> 'I_n}) (maker : option 'I_n).
Hypotheses (hc : carriers X p (y, v) c) (hm : makes_room X p v c maker).
Let Y := exchange_member X p y v c maker.

(* The persons without their units, and that they make an exchange. *)
Definition persons (Z : dataset) : Datasets.dataset (record F V) n := [ffun i => (Z i).1].

Lemma persons_exchange : persons Y = exchange block node (persons X) p y c.
Proof.
by apply/ffunP=> i; rewrite !ffunE; case: (eqVneq i p) => //= _; apply/ffunP=> f; rewrite !ffunE.
Qed.

Lemma persons_carriers : @Reach.carriers _ B _ (tuple_in block node) n (persons X) p y c.
Proof.
apply/carriersP=> b d; rewrite ffunE.
have : b \in differ published (X p) (y, v).
  by move: d; rewrite !inE ffunE; apply: contraNN => /publishedP[-> _].
by move/(carriersP _ _ _ _ _ hc) => /eqP/publishedP[].
Qed.

Lemma handed_differ : handed X p v -> b0 \in differ published (X p) (y, v).
Proof. by rewrite inE; apply: contraNN => /publishedP[_ ->]. Qed.

Lemma carrier_place : handed X p v -> place (X (c b0)).2 = place v.
Proof. by move=> /handed_differ/(carriersP _ _ _ _ _ hc)/eqP/publishedP[_ ->]. Qed.

Lemma carrier_not_person : handed X p v -> c b0 != p.
Proof. by move=> /handed_differ; apply: carrier_other hc. Qed.

(* Whoever makes room keeps the published place. *)
Lemma short_place : place (short_unit X p v c) = place v.
Proof.
by rewrite /short_unit; case: ifP => [/carrier_place //|/negbFE/eqP].
Qed.

Lemma unit_after i : (Y i).2 = if i == p then v else if handed X p v && (c b0 == i) then (X p).2
  else if maker == Some i then short_unit X p v c else (X i).2.
Proof. by rewrite ffunE; case: ifP. Qed.

Lemma exchange_member_totals : same_totals X Y.
Proof.
pose own b := b \in differ (tuple_in block node) (X p).1 y.
have carrier_at b : own b || ((b == b0) && handed X p v) ->
    [/\ c b != p, tuple_in block node (X (c b)).1 b = tuple_in block node y b
      & b = b0 -> place (X (c b)).2 = place v].
  move=> h; have d : b \in differ published (X p) (y, v).
    case/orP: h => [h|/andP[/eqP -> h]]; last exact: handed_differ.
    by move: h; rewrite /own !inE; apply: contraNN => /publishedP[-> _].
  split; first exact: carrier_other hc d.
    by have /eqP/publishedP[] := carriersP _ _ _ _ _ hc b d.
  by have /eqP/publishedP[_] := carriersP _ _ _ _ _ hc b d.
have person_tuple b : ~~ own b -> tuple_in block node (X p).1 b = tuple_in block node y b.
  by rewrite /own inE negbK => /eqP.
have here : ~~ handed X p v -> place (X p).2 = place v by rewrite negbK => /eqP.
apply: (@rearranged_totals _ _ _ _ _ _ _ (fun b =>
  if own b || ((b == b0) && handed X p v) then tperm p (c b) else 1%g)) => i b.
apply/eqP/publishedP; split.
  have := @exchange_tuple n F B V N block node _ _ _ _ i b persons_carriers.
  rewrite -persons_exchange !ffunE -/(own b) => ->.
  case ob : (own b) => //=; case: ifP => hb; rewrite perm1 //.
  have [cp ct _] := carrier_at b (introT orP (or_intror hb)).
  by case: tpermP => [->|->|//]; rewrite ?ct person_tuple ?ob.
move=> eb; rewrite eb unit_after; case: (eqVneq i p) => [->|ip].
  case: ifP => [h|/negbT]; first by rewrite tpermL; have [_ _ ->] := carrier_at _ h.
  by rewrite negb_or eqxx /= perm1 => /andP[_ /here].
have [->|ic] := eqVneq i (c b0).
  rewrite !eqxx andbT /=; case: (boolP (handed X p v)) => [h|nh]; first by rewrite orbT tpermR.
  rewrite orbF; case: (boolP (own b0)) => [o|_]; last first.
    by rewrite perm1; case: eqP => // /hm[_ -> _]; apply: short_place.
  have [_ _ /(_ erefl) e] := carrier_at b0 (introT orP (or_introl o)).
  by rewrite tpermR here //; case: ifP => // _; apply: short_place.
rewrite andbF.
have -> : (if own b0 || (b0 == b0) && handed X p v then tperm p (c b0) else 1%g) i = i.
  by case: ifP => _; rewrite ?perm1 // tpermD // eq_sym.
by case: eqP => // /hm[_ -> _]; apply: short_place.
Qed.

(* How many members a unit has, as a table of units. *)
Lemma unit_sizeE Z h : Posz (unit_size Z h) = table (fun i => (Z i).2) h.
Proof. by []. Qed.

(* Without anybody who makes room, the new unit has a member more and the unit that is short one less; with
   somebody who makes room, all sizes stay. *)
Lemma exchange_member_sizes h :
  (unit_size Y h + (if maker is Some _ then 0 else short_unit X p v c == h) =
   unit_size X h + (if maker is Some _ then 0 else v == h))%N.
Proof.
pose D := if maker is Some j then (if handed X p v then [set p; c b0; j] else [set p; j])
          else if handed X p v then [set p; c b0] else [set p].
have same i : i \notin D -> (Y i).2 = (X i).2.
  rewrite unit_after /D; case: maker hm => [j hj|_]; case: (boolP (handed X p v)) => hv /=; rewrite !inE ?negb_or.
  - by move=> /andP[/andP[/negbTE -> ic] ij]; rewrite eq_sym (negbTE ic) /= (inj_eq (@Some_inj _)) eq_sym (negbTE ij).
  - by move=> /andP[/negbTE -> ij]; rewrite (inj_eq (@Some_inj _)) eq_sym (negbTE ij).
  - by move=> /andP[/negbTE -> ic]; rewrite eq_sym (negbTE ic).
  - by move=> /negbTE ->.
have two (k : 'I_n -> nat) i1 i2 : i2 != i1 -> \sum_(i in [set i1; i2]) k i = k i1 + k i2.
  by move=> h21; rewrite big_setU1 ?big_set1 //= inE eq_sym.
have three (k : 'I_n -> nat) i1 i2 i3 : i2 != i1 -> i3 != i1 -> i3 != i2 ->
    \sum_(i in [set i1; i2; i3]) k i = k i1 + k i2 + k i3.
  move=> h21 h31 h32; rewrite setUC big_setU1 /= ?two //; first by rewrite addnC.
  by rewrite !inE negb_or h31 h32.
have settle (s t x y' z : nat) : (Posz s - Posz t = Posz (x + z) - Posz (z + y'))%R -> s + y' = t + x by lia.
have settle2 (s t x y' : nat) : (Posz s - Posz t = Posz (x + y') - Posz (y' + x))%R -> s + 0 = t + 0 by lia.
have settle3 (s t x y' z : nat) :
    (Posz s - Posz t = Posz (x + y' + z) - Posz (y' + z + x))%R -> s + 0 = t + 0 by lia.
have := table_change h same; rewrite -!unit_sizeE /count_in /D => {same D}.
have atp : (Y p).2 = v by rewrite unit_after eqxx.
have atc : handed X p v -> (Y (c b0)).2 = (X p).2.
  by move=> hv; rewrite unit_after (negbTE (carrier_not_person hv)) hv eqxx.
case em : maker => [j|]; last first.
  rewrite /short_unit; case: (boolP (handed X p v)) => hv.
    by rewrite !two ?carrier_not_person //= atp atc //; apply: settle.
  by rewrite !big_set1 /= atp => e; apply: (settle _ _ _ _ 0%N); rewrite addn0 add0n.
have [jp ju nz] := hm em.
have atj : (Y j).2 = short_unit X p v c by rewrite unit_after (negbTE jp) (negbTE nz) em eqxx.
rewrite /short_unit in atj; case: (boolP (handed X p v)) => hv; rewrite ?hv ?(negbTE hv) in atj nz.
  have cj : j != c b0 by rewrite eq_sym.
  rewrite !three ?carrier_not_person //= atp atc // atj ju => e.
  by apply: settle3 e.
rewrite !two //= atp atj ju => e.
by apply: settle2 e.
Qed.

(* ---- tables of members ---- *)

(* The table shows of feature f the label of its leaf (on the chain of what is published), and of a unit
   whatever is inherited from it. *)
Variables (M L : finType) (label : F -> V -> M) (show : H -> L).
Hypothesis chains : forall f, on_chain node label f.

Definition member_cell (r : member) := (cell label r.1, show r.2).
Definition member_cells (Z : dataset) (i : 'I_n) := member_cell (Z i).

(* Whom the table sees: carriers of own features, ... *)
Definition seen_own := seen_carriers block node label (persons X) p y c.
(* ... the carrier of the place and whoever makes room, if the table shows them in another place. *)
Definition seen_places := [set i | (i != p) && (show (X i).2 != show (Y i).2)].
Definition seen_others := seen_own :|: seen_places.

Let f i := cell label (X i).1.
Let g i := cell label (Y i).1.

Lemma own_cells : f =1 cells label (persons X) /\ g =1 cells label (exchange block node (persons X) p y c).
Proof.
by split=> i; [rewrite /cells ffunE|rewrite -persons_exchange /cells ffunE].
Qed.

Lemma own_unseen i : i \notin p |: seen_own -> f i = g i.
Proof. by have [-> ->] := own_cells; apply: others_unseen persons_carriers _. Qed.

(* A carrier of own features changes its own cell. *)
Lemma seen_own_changes i : i \in seen_own -> f i <> g i.
Proof.
have [-> ->] := own_cells => iE; have pE := person_not_carrier label persons_carriers.
have ip : i != p by apply: contraNneq pE => e; rewrite -{1}e.
case/imsetP: (iE) => b /seen_blocksP[e [eb mv k]] ei.
move/ffunP/(_ e); rewrite /cells /cell [LHS]ffunE [RHS]ffunE exchange_other // mv eb ei eqxx /=.
by move/esym; exact: (carrier_label_before chains persons_carriers eb mv k).
Qed.

(* Whoever changes the place is the carrier of the place, or makes room. *)
Lemma seen_placesP i : i \in seen_places ->
  (handed X p v /\ i = c b0 /\ show (X i).2 <> show (X p).2 /\ (Y i).2 = (X p).2) \/
  (maker = Some i /\ show v <> show (short_unit X p v c) /\ (Y i).2 = short_unit X p v c).
Proof.
rewrite inE => /andP[ip]; rewrite unit_after (negbTE ip).
case: (boolP (handed X p v && (c b0 == i))) => [/andP[h /eqP e] /eqP ne|nc].
  by left; rewrite e; split=> //; split=> //; split=> //; rewrite e.
case: (maker =P Some i) => [em /eqP ne|_]; last by rewrite eqxx.
by right; have [_ ju _] := hm em; rewrite ju in ne.
Qed.

Lemma others_kept i : i \notin p |: seen_others -> member_cells X i = member_cells Y i.
Proof.
rewrite !in_setU1 !negb_or in_setU => /andP[ip]; rewrite negb_or => /andP[no np].
rewrite /member_cells /member_cell; congr pair; first by apply: own_unseen; rewrite in_setU1 negb_or ip.
by move: np; rewrite inE ip /= negbK => /eqP.
Qed.

(* The number of the others that the table sees. A unit of another place is told apart by [coarse]; two
   units of one place by [fine]. *)
Definition fine := [exists h, exists h', (place h == place h') && (show h != show h')].
Definition coarse := [exists h, exists h', (place h != place h') && (show h != show h')].
Definition touched_by_members := [set b | [exists e, exists w, exists w',
  [&& block e == b, node e w != node e w' & label e w != label e w']]] :|: (if coarse then [set b0] else set0).

Lemma few_others : #|seen_others| <= #|touched_by_members| + fine.
Proof.
pose maker_set := if maker is Some j then (if fine then [set j] else set0) else set0.
have sub : seen_others \subset [set c b | b in touched_by_members] :|: maker_set.
  apply/subsetP=> i; rewrite [i \in seen_others]in_setU => /orP[/imsetP[b /seen_blocksP[e [eb mv k]] ->]|iP].
    rewrite in_setU; apply/orP; left; apply: imset_f; rewrite in_setU; apply/orP; left.
    rewrite inE; apply/existsP; exists e; apply/existsP; exists (persons X p e); apply/existsP; exists (y e).
    by apply/and3P; split; [apply/eqP|apply: mv|apply/eqP].
  have [[h [-> [ne _]]]|[em [ne _]]] := seen_placesP iP.
    rewrite in_setU; apply/orP; left; apply: imset_f; rewrite in_setU; apply/orP; right.
    have -> : coarse; last by rewrite inE.
    apply/existsP; exists (X p).2; apply/existsP; exists (X (c b0)).2.
    by rewrite (carrier_place h); apply/andP; split; [exact: h|apply/eqP=> e; apply: ne].
  have hf : fine.
    apply/existsP; exists v; apply/existsP; exists (short_unit X p v c).
    by rewrite short_place eqxx; apply/eqP.
  by rewrite in_setU /maker_set em hf set11 orbT.
apply: leq_trans (subset_leq_card sub) _; apply: leq_trans (leq_card_setU _ _) _.
apply: leq_add; first exact: leq_imset_card.
by rewrite /maker_set; case: maker => [j|]; case: fine; rewrite ?cards1 ?cards0.
Qed.

Lemma member_norms (q := #|seen_others|) :
  (l1 (member_cells X) (member_cells Y) <= (2 * (q + 1))%N%:Z)%R /\
  (l2_squared (member_cells X) (member_cells Y) <= (q ^ 2 + q + 2 + 2 * fine)%N%:Z)%R.
Proof.
have pE : p \notin seen_others.
  by rewrite in_setU negb_or inE eqxx andbT; apply: person_not_carrier persons_carriers.
split.
  apply: le_trans (l1_le others_kept) _; rewrite lez_nat leq_mul2l /= cardsU1 pE.
  by rewrite /q add1n addn1.
pose O := if fine then seen_places :\: seen_own else set0.
have OE : O \subset seen_others.
  by rewrite /O; case: fine; rewrite ?sub0set // (subset_trans (subsetDl _ _)) ?subsetUr.
have memO i : i \in seen_others -> (i \in O) = fine && (i \notin seen_own).
  rewrite /O in_setU; case: fine => [|_]; last by rewrite in_set0.
  by rewrite in_setD; case: (i \in seen_own).
have in_places i : i \in seen_others -> i \notin seen_own -> i \in seen_places.
  by rewrite in_setU => /orP[->|].
have apart_places i k : show (X i).2 <> show (X k).2 -> (member_cells X i == member_cells X k) = false.
  by move=> ne; apply/negbTE; rewrite xpair_eqE negb_and; apply/orP; right; apply/eqP.
have apart_places_after i k : show (Y i).2 <> show (Y k).2 -> (member_cells Y i == member_cells Y k) = false.
  by move=> ne; apply/negbTE; rewrite xpair_eqE negb_and; apply/orP; right; apply/eqP.
have person_after : (Y p).2 = v by rewrite unit_after eqxx.
have person i : i \in seen_others ->
    ((member_cells X p == member_cells X i) + (member_cells Y p == member_cells Y i) <= (i \in O))%N.
  move=> iE; rewrite memO //; case: (boolP (i \in seen_own)) => io; rewrite ?andbT ?andbF.
    have := carrier_apart_from_person chains persons_carriers io; have [hf hg] := own_cells.
    rewrite -!hf -!hg => /andP[/negbTE n1 /negbTE n2].
    by rewrite /member_cells /member_cell !xpair_eqE -/(f p) -/(f i) -/(g p) -/(g i) n1 n2.
  have [[h [ei [ne e]]]|[em [ne e]]] := seen_placesP (in_places i iE io).
    rewrite apart_places; last exact/nesym.
    case: (boolP fine) => [_|/existsPn none]; first by rewrite leq_b1.
    rewrite apart_places_after // person_after e => same.
    have /existsPn/(_ (X i).2) := none v; rewrite {1}ei (carrier_place h) eqxx /= => /negbNE/eqP.
    by rewrite same => /esym.
  have -> : (member_cells Y p == member_cells Y i) = false.
    by apply: apart_places_after; rewrite person_after e.
  suff -> : fine by rewrite addn0 leq_b1.
  by apply/existsP; exists v; apply/existsP; exists (short_unit X p v c); rewrite short_place eqxx; apply/eqP.
have pairs i k : i \in seen_others -> k \in seen_others -> i != k ->
    ((member_cells X i == member_cells X k) + (member_cells Y i == member_cells Y k)
      <= ~~ ((i \in O) && (k \in O)))%N.
  have one_own i' k' : i' \in seen_own -> k' \in seen_others -> i' != k' ->
      ((member_cells X i' == member_cells X k') + (member_cells Y i' == member_cells Y k') <= 1)%N.
    move=> io kE ik; case: (member_cells X i' =P member_cells X k') => [e|_]; last by rewrite leq_b1.
    case: (member_cells Y i' =P member_cells Y k') => [e'|//].
    have hf : f i' = f k' by case: e.
    have hg : g i' = g k' by case: e'.
    case: (boolP (k' \in seen_own)) => [ko|ko].
      have := carriers_apart chains persons_carriers io ko ik; have [a1 a2] := own_cells.
      by rewrite -!a1 -!a2 hf hg !eqxx.
    case: (seen_own_changes io); rewrite hf hg; apply: own_unseen; rewrite in_setU1 negb_or ko andbT.
    by apply: contraNneq pE => <-.
  move=> iE kE ik; rewrite !memO //.
  case: (boolP (i \in seen_own)) => io; first by rewrite !andbF; apply: one_own.
  case: (boolP (k \in seen_own)) => ko.
    rewrite !andbF [member_cells X i == _]eq_sym [member_cells Y i == _]eq_sym; apply: one_own => //.
    by rewrite eq_sym.
  have never i' k' : handed X p v /\ i' = c b0 /\ show (X i').2 <> show (X p).2 /\ (Y i').2 = (X p).2 ->
      maker = Some k' /\ show v <> show (short_unit X p v c) /\ (Y k').2 = short_unit X p v c ->
      ((member_cells X i' == member_cells X k') + (member_cells Y i' == member_cells Y k') = 0)%N.
    move=> [h [ei [ne e]]] [em [ne' e']]; have [_ ku _] := hm em.
    rewrite /short_unit h in ne' e'; rewrite apart_places ?apart_places_after //.
      by rewrite e e'; apply/nesym; rewrite -ei.
    by rewrite ku ei; apply/nesym.
  case: (seen_placesP (in_places i iE io)) => si; case: (seen_placesP (in_places k kE ko)) => sk.
  - by case: si sk ik => [_ [-> _]] [_ [-> _]]; rewrite eqxx.
  - by rewrite never.
  - by rewrite [member_cells X i == _]eq_sym [member_cells Y i == _]eq_sym never.
  - by case: si sk ik => [-> _] [[->] _]; rewrite eqxx.
apply: le_trans (star_with_places pE OE others_kept person pairs) _; rewrite lez_nat leq_add2l leq_mul2l /=.
by rewrite /O; case: fine; rewrite ?leq_b1 ?eqxx.
Qed.
End OneExchange.

(* Y arises from X by the exchange of one member. *)
Definition one_member X Y := exists p y v c maker,
  [/\ carriers X p (y, v) c, makes_room X p v c maker & Y = exchange_member X p y v c maker].

(* ONE MEMBER KEEPS TOTALS, AND ALMOST ALL SIZES. The exchange of one member keeps all exact totals of members.
   No unit changes its size, or two do: one has a member less, one a member more. *)
Theorem one_member_keeps X Y : one_member X Y -> same_totals X Y /\
  ((forall h, unit_size Y h = unit_size X h) \/
   exists u v, u <> v /\ forall h, unit_size Y h + (u == h) = unit_size X h + (v == h)).
Proof.
move=> [p [y [v [c [maker [hc hm ->]]]]]]; split; first exact: exchange_member_totals.
have sizes := exchange_member_sizes hc hm.
case: maker hm sizes => [j|] hm sizes; first by left=> h; have := sizes h; rewrite !addn0.
case: (eqVneq (short_unit X p v c) v) => [e|/eqP ne]; last by right; exists (short_unit X p v c), v.
by left=> h; have := sizes h; rewrite e => /addIn.
Qed.

(* EVERYBODY IS REACHED BY THE EXCHANGE OF ONE MEMBER. In a dataset with allowed sizes every member becomes any
   person y in any unit v with room for one, if the published values of y in v are inhabited; all sizes
   stay allowed. *)
Theorem one_member_reach X p y v : sizes_allowed lo hi X -> 0 < hi v -> inhabited published X (y, v) ->
  exists Y, [/\ one_member X Y, Y p = (y, v) & sizes_allowed lo hi Y].
Proof.
move=> /forallP sizes hv hy; have [c hc] := carriers_exist p hy.
have person maker : exchange_member X p y v c maker p = (y, v) by rewrite ffunE eqxx.
have nobody : makes_room X p v c None by [].
case: (eqVneq (short_unit X p v c) v) => [e|ne].
  exists (exchange_member X p y v c None); split; rewrite ?person //; first by exists p, y, v, c, None.
  by apply/forallP=> h; have := exchange_member_sizes hc nobody h; rewrite e => /addIn ->.
case: (posnP (unit_size X v)) => [empty|/card_gt0P[j]].
  exists (exchange_member X p y v c None); split; rewrite ?person //; first by exists p, y, v, c, None.
  apply/forallP=> h; have := exchange_member_sizes hc nobody h; have /andP[h1 h2] := sizes h.
  have lo0 : lo = 0 by have /andP[+ _] := sizes v; rewrite empty leqn0 => /eqP.
  rewrite lo0 /=; case: (eqVneq v h) => [<-|_]; last first.
    by rewrite addn0 => e; apply: leq_trans h2; rewrite -e; apply: leq_addr.
  by rewrite empty (negbTE ne) addn0 => ->.
rewrite inE => /eqP ju.
have hm : makes_room X p v c (Some j).
  move=> i [<-]; split=> //.
    apply: contraNneq ne => jp; rewrite /short_unit /handed -jp ju eqxx /=; exact/eqP.
  apply: contraNN ne => /andP[h /eqP e]; by rewrite /short_unit h e ju.
exists (exchange_member X p y v c (Some j)); split; rewrite ?person //; first by exists p, y, v, c, (Some j).
by apply/forallP=> h; have := exchange_member_sizes hc hm h; rewrite !addn0 => ->.
Qed.

(* NORMS OF TABLES OF MEMBERS. Y arises from X by the exchange of one member, or X from Y. q counts the blocks
   that the table touches, the block of the place among them if the table shows units of different places
   differently, and one more (who makes room) if it shows two units of one published place differently.
   The tables differ by at most 2(q + 1) in l1 and by at most q^2 + q + 2 in squared l2, or q^2 + q + 4 if it
   shows two units of one place differently. *)
Theorem one_member_norms (M L : finType) (label : F -> V -> M) (show : H -> L) X Y (more : nat := fine show)
    (q := #|touched_by_members label show| + more) :
  (forall f, on_chain node label f) -> one_member X Y \/ one_member Y X ->
  (l1 (member_cells label show X) (member_cells label show Y) <= (2 * (q + 1))%N%:Z)%R /\
  (l2_squared (member_cells label show X) (member_cells label show Y) <= (q ^ 2 + q + 2 + 2 * more)%N%:Z)%R.
Proof.
move=> chains; have one X' Y' : one_member X' Y' ->
    (l1 (member_cells label show X') (member_cells label show Y') <= (2 * (q + 1))%N%:Z)%R /\
    (l2_squared (member_cells label show X') (member_cells label show Y') <= (q ^ 2 + q + 2 + 2 * more)%N%:Z)%R.
  move=> [p [y [v [c [maker [hc hm ->]]]]]]; have [h1 h2] := member_norms hc hm show chains.
  have few := few_others hc hm label show; rewrite -/q in few.
  split; [apply: le_trans h1 _|apply: le_trans h2 _]; rewrite lez_nat; first by lia.
  by rewrite !leq_add2r leq_add // leq_exp2r.
by case=> [/one //|/one]; rewrite l1_sym l2_squared_sym.
Qed.

(* NORMS OF TABLES OF UNITS. The table shows of a unit what it keeps, and its size, single or in groups of
   consecutive sizes. The exchange of one member moves it by at most 4 in l1 and 6 in squared l2. *)
Theorem one_member_unit_norms (U L : finType) (own : H -> U) (group : nat -> L) X Y
    (cells := fun Z h => (own h, group (unit_size Z h))) :
  (forall s s' s'', s <= s' -> s' <= s'' -> group s = group s'' -> group s' = group s) ->
  one_member X Y -> (l1 (cells X) (cells Y) <= 4)%R /\ (l2_squared (cells X) (cells Y) <= 6)%R.
Proof.
move=> consecutive /one_member_keeps[_ [same|[u [v [/eqP uv sizes]]]]].
  have e cell : table (cells X) cell = table (cells Y) cell.
    by rewrite /table; congr Posz; apply: eq_card => i; rewrite !inE /cells same.
  by rewrite /l1 /l2_squared !big1 // => cell _; rewrite e subrr ?normr0 ?expr0n.
have rest h : h \notin [set u; v] -> cells X h = cells Y h.
  rewrite !inE negb_or => /andP[/negbTE hu /negbTE hv]; have := sizes h.
  by rewrite ![_ == h]eq_sym hu hv !addn0 /cells => ->.
have two (k : H -> nat) : \sum_(h in [set u; v]) k h = k u + k v.
  by rewrite big_setU1 ?big_set1 // inE.
split; first by apply: le_trans (l1_le rest) _; rewrite cards2 uv.
rewrite (l2_squared_pairs rest) !two !eqxx.
have su := sizes u; have sv := sizes v; rewrite !eqxx [v == u]eq_sym (negbTE uv) ?addn0 in su sv.
rewrite [cells X v == _]eq_sym [cells Y v == cells Y u]eq_sym.
case: (cells X u =P cells X v) => [e|_]; last by case: (cells Y u == cells Y v); lia.
case: (cells Y u =P cells Y v) => [e'|_]; last by lia.
case: (e) => eo eg; case: (e') => _ eg'.
have less : unit_size Y u + 1 = unit_size X u := su; have more : unit_size Y v = unit_size X v + 1 := sv.
have all : group (unit_size X u) = group (unit_size Y u).
  case: (leqP (unit_size X u) (unit_size X v)) => le.
    by apply: (consecutive _ _ (unit_size Y v)) => //; lia.
  by rewrite (consecutive (unit_size X v) (unit_size Y u) (unit_size X u)) //; lia.
have same : cells X u = cells Y u by rewrite /cells all.
by rewrite -e -e' same eqxx.
Qed.

End LinkedExchange.
